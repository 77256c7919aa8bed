//! The JSON of a trace, visited as it streams by. Keeps a small row of each memory event and nothing of the others.
//!
//! Keys come in any order: kineto writes `deviceProperties` first, other tools last. Knows spelling; what the rows mean
//! is told by [`super::memory`].

use super::memory::{DeviceRows, Row};
use crate::json::{Scalar, Stream};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Devices that are kept apart; a host has some tens, and a damaged file must not invent millions.
const MAX_DEVICES: usize = 256;
/// Memory events kept of one file, in 200 MB. A trace has some ten thousand for each step.
const MAX_EVENTS: u32 = 4 << 20;
/// Failed allocations kept.
const MAX_FAILED: usize = 4096;
/// The CPU among the device types; its memory is not that of a GPU.
const HOST: i64 = 0;

/// What is kept of a trace.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The document has `traceEvents` or what else only a trace has.
    has_events: bool,
    pub(super) distributed: Distributed,
    pub(super) properties: Vec<Properties>,
    /// Added to all times, in nanoseconds.
    pub(super) base_nanos: Option<i64>,
    /// Rows by device, in order of appearance.
    pub(super) devices: Vec<DeviceRows>,
    pub(super) failed: Vec<Failed>,
    pub(super) host_events: u64,
    pub(super) left_out: u64,
    /// Memory events beyond [`MAX_EVENTS`].
    pub(super) beyond: u64,
    /// Memory events so far.
    count: u32,
}

/// `distributedInfo`.
#[derive(Debug, Default)]
pub(super) struct Distributed {
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u32>,
    pub(super) backend: Option<String>,
}

/// One of `deviceProperties`.
#[derive(Debug, Default)]
pub(super) struct Properties {
    pub(super) id: u32,
    pub(super) name: Option<String>,
    pub(super) total: Option<u64>,
}

/// An allocation that failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) nanos: Option<i64>,
    pub(super) device: u32,
    pub(super) tried: u64,
    pub(super) allocated: Option<u64>,
    pub(super) reserved: Option<u64>,
}

impl Trace {
    /// Reads the document into this. What was read before an error stays.
    pub(super) fn read(&mut self, stream: &mut Stream<'_>) -> serde_json::Result<()> {
        stream.deserialize_any(Document(self))
    }

    /// Whether this is a trace at all.
    pub(super) fn is_one(&self) -> bool {
        self.has_events || self.distributed.rank.is_some()
    }

    fn take(&mut self, event: &MemoryEvent) {
        let args = &event.args;
        if args.device_type == Some(HOST) || args.device.is_some_and(|id| id < 0) {
            self.host_events = self.host_events.saturating_add(1);
            return;
        }
        let device = args.device.and_then(|id| u32::try_from(id).ok());
        let (Some(device), Some(bytes), Some(nanos)) = (device, args.bytes, event.nanos) else {
            self.left_out = self.left_out.saturating_add(1);
            return;
        };
        if event.name == Name::OutOfMemory {
            if self.failed.len() < MAX_FAILED {
                self.failed.push(Failed {
                    nanos: Some(nanos),
                    device,
                    tried: bytes.unsigned_abs(),
                    allocated: args.allocated,
                    reserved: args.reserved,
                });
            }
            return;
        }
        if self.count >= MAX_EVENTS {
            self.beyond = self.beyond.saturating_add(1);
            return;
        }
        let known = self.devices.iter().position(|rows| rows.device == device);
        let index = match known {
            Some(index) => index,
            None if self.devices.len() < MAX_DEVICES => {
                self.devices.push(DeviceRows::new(device));
                self.devices.len().saturating_sub(1)
            }
            None => {
                self.left_out = self.left_out.saturating_add(1);
                return;
            }
        };
        if let Some(rows) = self.devices.get_mut(index) {
            rows.push(Row { nanos, order: self.count, bytes, totals: args.allocated.zip(args.reserved) });
        }
        self.count = self.count.saturating_add(1);
    }
}

/// Keys of one level.
macro_rules! keys {
    ($name:ident { $($key:ident = $text:literal),* $(,)? }) => {
        enum $name { $($key,)* Other }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct KeyVisitor;
                impl Visitor<'_> for KeyVisitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a key")
                    }
                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        self.visit_bytes(text.as_bytes())
                    }
                    fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<$name, E> {
                        $(if text == $text.as_bytes() { return Ok($name::$key); })*
                        Ok($name::Other)
                    }
                }
                deserializer.deserialize_bytes(KeyVisitor)
            }
        }
    };
}

keys!(TopKey {
    Events = "traceEvents",
    Distributed = "distributedInfo",
    Properties = "deviceProperties",
    Base = "baseTimeNanoseconds",
});
keys!(EventKey { Name = "name", Time = "ts", Args = "args" });
keys!(ArgKey {
    DeviceType = "Device Type",
    Device = "Device Id",
    Bytes = "Bytes",
    Allocated = "Total Allocated",
    Reserved = "Total Reserved",
});
keys!(DistributedKey { Rank = "rank", WorldSize = "world_size", Backend = "backend" });
keys!(PropertyKey { Id = "id", Name = "name", Total = "totalGlobalMem" });

/// Writes a visitor that takes the shapes it names, and lets every other value pass.
macro_rules! lenient {
    ($visitor:ident<$value:ty>, $otherwise:expr, { $($method:tt)* }) => {
        impl<'de> Visitor<'de> for $visitor<'_> {
            type Value = $value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<$value, E> {
                Ok($otherwise)
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<$value, E> {
                Ok($otherwise)
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<$value, E> {
                Ok($otherwise)
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<$value, E> {
                Ok($otherwise)
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<$value, E> {
                Ok($otherwise)
            }

            fn visit_unit<E: Error>(self) -> Result<$value, E> {
                Ok($otherwise)
            }

            $($method)*
        }

        impl<'de> DeserializeSeed<'de> for $visitor<'_> {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    };
}

fn pass_items<'de, A: SeqAccess<'de>>(mut items: A) -> Result<(), A::Error> {
    while items.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn pass_entries<'de, A: MapAccess<'de>>(mut entries: A) -> Result<(), A::Error> {
    while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// The whole: a dict with `traceEvents`, or the bare list.
struct Document<'t>(&'t mut Trace);

lenient!(Document<()>, (), {
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        self.0.has_events = true;
        Events(self.0).visit_seq(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<TopKey>()? {
            match key {
                TopKey::Events => {
                    self.0.has_events = true;
                    entries.next_value_seed(Events(self.0))?;
                }
                TopKey::Distributed => entries.next_value_seed(DistributedInfo(&mut self.0.distributed))?,
                TopKey::Properties => entries.next_value_seed(DeviceList(&mut self.0.properties))?,
                TopKey::Base => self.0.base_nanos = entries.next_value::<Scalar>()?.as_i64(),
                TopKey::Other => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
});

struct Events<'t>(&'t mut Trace);

lenient!(Events<()>, (), {
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut event = MemoryEvent::default();
        while items.next_element_seed(EventSeed(&mut event))?.is_some() {
            if matches!(event.name, Name::Memory | Name::OutOfMemory) {
                self.0.take(&event);
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<(), A::Error> {
        pass_entries(entries)
    }
});

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Name {
    #[default]
    NotYet,
    Memory,
    OutOfMemory,
    Another,
}

/// One event, as far as it is looked at.
#[derive(Debug, Default)]
struct MemoryEvent {
    name: Name,
    nanos: Option<i64>,
    args: MemoryArgs,
}

#[derive(Debug, Default)]
struct MemoryArgs {
    device_type: Option<i64>,
    device: Option<i64>,
    bytes: Option<i64>,
    allocated: Option<u64>,
    reserved: Option<u64>,
}

struct EventSeed<'e>(&'e mut MemoryEvent);

lenient!(EventSeed<()>, (), {
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        *self.0 = MemoryEvent::default();
        pass_items(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let event = self.0;
        *event = MemoryEvent::default();
        while let Some(key) = entries.next_key::<EventKey>()? {
            match key {
                EventKey::Name => event.name = entries.next_value::<Name>()?,
                // A million other events have their times and arguments passed over unread.
                EventKey::Time if event.name != Name::Another => {
                    event.nanos = entries.next_value::<Scalar>()?.as_thousandths();
                }
                EventKey::Args if event.name != Name::Another => entries.next_value_seed(Args(&mut event.args))?,
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
});

impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Scalar::deserialize(deserializer)?;
        Ok(match text.as_text() {
            Some("[memory]") => Self::Memory,
            Some("[OutOfMemory]") => Self::OutOfMemory,
            _ => Self::Another,
        })
    }
}

struct Args<'e>(&'e mut MemoryArgs);

lenient!(Args<()>, (), {
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        pass_items(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let args = self.0;
        while let Some(key) = entries.next_key::<ArgKey>()? {
            match key {
                ArgKey::DeviceType => args.device_type = entries.next_value::<Scalar>()?.as_i64(),
                ArgKey::Device => args.device = entries.next_value::<Scalar>()?.as_i64(),
                ArgKey::Bytes => args.bytes = entries.next_value::<Scalar>()?.as_i64(),
                ArgKey::Allocated => args.allocated = entries.next_value::<Scalar>()?.as_u64(),
                ArgKey::Reserved => args.reserved = entries.next_value::<Scalar>()?.as_u64(),
                ArgKey::Other => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
});

struct DistributedInfo<'t>(&'t mut Distributed);

lenient!(DistributedInfo<()>, (), {
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        pass_items(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<DistributedKey>()? {
            match key {
                DistributedKey::Rank => {
                    let rank = entries.next_value::<Scalar>()?.as_u32();
                    self.0.rank = rank.filter(|rank| *rank < crate::rank_name::MAX_RANK);
                }
                DistributedKey::WorldSize => self.0.world_size = entries.next_value::<Scalar>()?.as_u32(),
                DistributedKey::Backend => {
                    let backend = entries.next_value::<Scalar>()?;
                    self.0.backend = backend.as_text().map(crate::container::display_name);
                }
                DistributedKey::Other => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
});

struct DeviceList<'t>(&'t mut Vec<Properties>);

lenient!(DeviceList<()>, (), {
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        loop {
            let mut device = Properties::default();
            if items.next_element_seed(Device(&mut device))?.is_none() {
                return Ok(());
            }
            if self.0.len() < MAX_DEVICES {
                self.0.push(device);
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<(), A::Error> {
        pass_entries(entries)
    }
});

struct Device<'t>(&'t mut Properties);

lenient!(Device<()>, (), {
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        pass_items(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<PropertyKey>()? {
            match key {
                PropertyKey::Id => self.0.id = entries.next_value::<Scalar>()?.as_u32().unwrap_or(u32::MAX),
                PropertyKey::Name => {
                    let name = entries.next_value::<Scalar>()?;
                    self.0.name = name.as_text().map(crate::container::display_name);
                }
                PropertyKey::Total => self.0.total = entries.next_value::<Scalar>()?.as_u64(),
                PropertyKey::Other => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
});
