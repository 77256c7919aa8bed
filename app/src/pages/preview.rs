//! What chats show beside the address of a report: its title, its verdict, and a picture with both and the chart.

use super::head;
use crate::words;
use leptos::prelude::*;
use leptos_meta::Meta;
use rankscope_model::Report;

/// Puts the card into the head of the page. `address` is the page's own, whole; its picture stands below it.
pub fn preview(report: &Report, address: String) {
    let title = words::shown_line(&report.run.title);
    let summary = words::shown_line(&report.diagnosis.summary);
    let image = format!("{address}/preview.png");
    head(view! {
        <Meta property="og:type" content="article"/>
        <Meta property="og:site_name" content="Rankscope"/>
        <Meta property="og:title" content=title/>
        <Meta property="og:description" content=summary.clone()/>
        <Meta property="og:url" content=address/>
        <Meta property="og:image" content=image/>
        <Meta property="og:image:type" content="image/png"/>
        <Meta property="og:image:width" content="1200"/>
        <Meta property="og:image:height" content="630"/>
        <Meta property="og:image:alt" content=summary/>
        <Meta name="twitter:card" content="summary_large_image"/>
    });
}
