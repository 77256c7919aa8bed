//! What the tools around a GPU print besides the plain table: CSV queries, reports, monitors, links, metrics.
//!
//! One module per format, each fed line by line, because a job log may hold all of them; they leave what they find in
//! one [`sink`]. No reader knows another, and none knows whether figures mean trouble.

mod csv;
mod failure;
mod gpustat;
mod json;
mod listing;
mod monitor;
mod nvitop;
mod prometheus;
pub mod query_range;
mod query_text;
mod query_xml;
mod report;
mod rocm;
mod sink;
mod topology;
mod values;

use crate::clock;
use crate::context::ReadContext;
use crate::lines::Line;
use rankscope_model::DeviceTable;
pub(crate) use sink::Found;
use sink::Sink;

/// All device-tool readers over one text.
pub(crate) struct DeviceTools<'c> {
    sink: Sink<'c>,
    csv: csv::CsvReader,
    gpustat: gpustat::GpustatReader,
    json: json::JsonReader,
    /// The GPU of the last line of `nvidia-smi -L`.
    listed_gpu: Option<u32>,
    monitor: monitor::MonitorReader,
    nvitop: nvitop::NvitopReader,
    prometheus: prometheus::PrometheusReader,
    text: query_text::QueryText,
    xml: query_xml::QueryXml,
    rocm: rocm::RocmReader,
    topology: topology::TopologyReader,
}

impl<'c> DeviceTools<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        Self {
            sink: Sink::new(ctx),
            csv: csv::CsvReader::default(),
            gpustat: gpustat::GpustatReader::default(),
            json: json::JsonReader::default(),
            listed_gpu: None,
            monitor: monitor::MonitorReader::default(),
            nvitop: nvitop::NvitopReader::default(),
            prometheus: prometheus::PrometheusReader::default(),
            text: query_text::QueryText::default(),
            xml: query_xml::QueryXml::default(),
            rocm: rocm::RocmReader::default(),
            topology: topology::TopologyReader::default(),
        }
    }

    /// Takes a line; `true` if it was part of one of the formats.
    pub(crate) fn line(&mut self, line: &Line<'_>) -> bool {
        if line.body.is_empty() {
            return false;
        }
        let sink = &mut self.sink;
        if let Some(time) = clock::parse(line.body) {
            sink.see_time(line.number, line.body, time);
            return false;
        }
        self.xml.line(line, sink)
            || self.json.line(line, sink)
            || self.prometheus.line(line, sink)
            || self.topology.line(line, sink)
            || listing::line(line, &mut self.listed_gpu, sink)
            || self.monitor.line(line, sink)
            || self.nvitop.line(line, sink)
            || self.rocm.line(line, sink)
            || self.gpustat.line(line, sink)
            || self.csv.line(line, sink)
            || self.text.line(line, sink)
            || failure::line(line, sink)
    }

    /// What was found. `plain` are the tables of the plain layout in the same text: they tell the index of cards.
    pub(crate) fn finish(mut self, plain: &[DeviceTable]) -> Found {
        let sink = &mut self.sink;
        self.csv.finish(sink);
        self.gpustat.finish(sink);
        self.monitor.finish(sink);
        self.nvitop.finish(sink);
        self.prometheus.finish(sink);
        self.text.finish(sink);
        self.xml.finish(sink);
        self.rocm.finish(sink);
        self.topology.finish(sink);
        self.sink.finish(plain)
    }
}
