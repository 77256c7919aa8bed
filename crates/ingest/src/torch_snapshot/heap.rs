//! Folds the containers of a snapshot into flat tables as they arrive: frames, stacks, blocks, segments, events.
//!
//! Nothing keeps a dict as a dict. What a container is, is told by its keys (dicts) or its first known member
//! (lists), never by the order of keys. Knows no opcode and computes no figure.

use super::fields::Fields;
use super::growth::{Lean, bytes_of};
use super::intern::SliceInterner;
use super::rows::{Block, Event, History, NO_STACK, Run, Segment, Top, Trace};
use super::value::{ObjectId, TextId, Value};
use super::words::{Word, WordSet};

/// Keys that were met, by the kind of dict they stood in; they tell the version of torch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) top: WordSet,
    pub(super) segment: WordSet,
    pub(super) block: WordSet,
    pub(super) event: WordSet,
    /// Dicts that are not read: settings, annotations.
    pub(super) other: WordSet,
    /// Values of `action`.
    pub(super) actions: WordSet,
}

/// What was left out, for the warnings.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeftOut {
    /// Members of typed lists that are something else, or a row that another list holds already.
    pub(super) strangers: u64,
    /// Frames beyond what a list may be extended by.
    pub(super) frames: u64,
    /// Sizes of segments and blocks that are none: negative, or no whole number.
    pub(super) sizes: u64,
}

/// The tables, or the file, are larger than ids can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TableFull;

/// What a container has been found to be. Packed into four bytes by [`Shape::pack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    EmptyDict,
    EmptyList,
    OtherDict,
    OtherList,
    /// A dict whose keys do not decide yet what it is; id in `partials`.
    Partial,
    Frame,
    /// A list of frames; id in `stacks`.
    Stack,
    Event,
    /// A list of events; id in `runs`.
    Events,
    Block,
    Blocks,
    Segment,
    Segments,
    HistoryEntry,
    /// A list of history entries; the id is that of the first one.
    HistoryList,
    /// A list of at most a few numbers, as pool ids are in some files: `count * 2 + any non-zero`.
    Numbers,
    /// A list of lists; id in `lists`.
    Lists,
    Top,
}

impl Kind {
    const ALL: [Self; 18] = [
        Self::EmptyDict,
        Self::EmptyList,
        Self::OtherDict,
        Self::OtherList,
        Self::Partial,
        Self::Frame,
        Self::Stack,
        Self::Event,
        Self::Events,
        Self::Block,
        Self::Blocks,
        Self::Segment,
        Self::Segments,
        Self::HistoryEntry,
        Self::HistoryList,
        Self::Numbers,
        Self::Lists,
        Self::Top,
    ];

    fn is_dict(self) -> bool {
        matches!(
            self,
            Self::EmptyDict
                | Self::OtherDict
                | Self::Partial
                | Self::Frame
                | Self::Event
                | Self::Block
                | Self::Segment
                | Self::HistoryEntry
                | Self::Top
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    kind: Kind,
    id: u32,
}

impl Shape {
    const KIND_BITS: u32 = 5;
    const KIND_MASK: u32 = (1 << Self::KIND_BITS) - 1;
    const MAX_ID: u32 = u32::MAX >> Self::KIND_BITS;

    fn plain(kind: Kind) -> Self {
        Self { kind, id: 0 }
    }

    fn row(kind: Kind, id: usize) -> Result<Self, TableFull> {
        match u32::try_from(id) {
            Ok(id) if id <= Self::MAX_ID => Ok(Self { kind, id }),
            _ => Err(TableFull),
        }
    }

    fn pack(self) -> u32 {
        self.id << Self::KIND_BITS | self.kind as u32
    }

    fn unpack(packed: u32) -> Self {
        let kind = Kind::ALL.get((packed & Self::KIND_MASK) as usize);
        Self { kind: kind.copied().unwrap_or(Kind::OtherDict), id: packed >> Self::KIND_BITS }
    }
}

/// Everything that was read, as tables.
pub(super) struct Heap {
    texts: SliceInterner<u8>,
    /// (name, file, line)
    frames: SliceInterner<u32>,
    /// Frame ids, innermost first.
    stacks: SliceInterner<u32>,
    /// What each container is, by order of creation.
    objects: Vec<u32>,
    events: Vec<Event>,
    /// The stack of each event, or [`NO_STACK`]. Apart from the rows, which would be a third longer with it.
    event_stacks: Vec<u32>,
    pub(super) blocks: Vec<Block>,
    segments: Vec<Segment>,
    histories: Vec<History>,
    tops: Vec<Top>,
    runs: Vec<Run>,
    lists: Vec<Vec<ObjectId>>,
    partials: Vec<Fields>,
    /// Re-used by every dict; away while one is read.
    spare: Option<Box<Fields>>,
    /// Re-used by every list of frames.
    frame_ids: Vec<u32>,
    /// Frames that were copied because their list came in several pieces.
    copied_frames: u64,
    list_items: usize,
    pub(super) seen: Seen,
    pub(super) left_out: LeftOut,
}

impl Heap {
    pub(super) fn new() -> Result<Self, TableFull> {
        let mut texts = SliceInterner::new();
        for word in Word::ALL {
            texts.intern(word.text().as_bytes()).ok_or(TableFull)?;
        }
        Ok(Self {
            texts,
            frames: SliceInterner::new(),
            stacks: SliceInterner::new(),
            objects: Vec::new(),
            events: Vec::new(),
            event_stacks: Vec::new(),
            blocks: Vec::new(),
            segments: Vec::new(),
            histories: Vec::new(),
            tops: Vec::new(),
            runs: Vec::new(),
            lists: Vec::new(),
            partials: Vec::new(),
            spare: None,
            frame_ids: Vec::new(),
            copied_frames: 0,
            list_items: 0,
            seen: Seen::default(),
            left_out: LeftOut::default(),
        })
    }

    /// Bytes of memory in use.
    pub(super) fn held(&self) -> usize {
        [
            self.texts.held(),
            self.frames.held(),
            self.stacks.held(),
            bytes_of::<u32>(self.objects.len()),
            bytes_of::<Event>(self.events.len()),
            bytes_of::<u32>(self.event_stacks.len()),
            bytes_of::<Block>(self.blocks.len()),
            bytes_of::<Segment>(self.segments.len()),
            bytes_of::<History>(self.histories.len()),
            bytes_of::<Top>(self.tops.len()),
            bytes_of::<Run>(self.runs.len()),
            bytes_of::<(Vec<ObjectId>, [u8; 32])>(self.lists.len()),
            bytes_of::<ObjectId>(self.list_items),
            bytes_of::<Fields>(self.partials.len()),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    pub(super) fn text(&mut self, text: &[u8]) -> Result<TextId, TableFull> {
        self.texts.intern(text).map(TextId).ok_or(TableFull)
    }

    pub(super) fn text_of(&self, id: TextId) -> &[u8] {
        self.texts.get(id.0)
    }

    pub(super) fn new_dict(&mut self) -> Result<ObjectId, TableFull> {
        self.new_object(Kind::EmptyDict)
    }

    pub(super) fn new_list(&mut self) -> Result<ObjectId, TableFull> {
        self.new_object(Kind::EmptyList)
    }

    fn new_object(&mut self, kind: Kind) -> Result<ObjectId, TableFull> {
        let id = u32::try_from(self.objects.len()).map_err(|_| TableFull)?;
        self.objects.push_lean(Shape::plain(kind).pack());
        Ok(ObjectId(id))
    }

    fn shape(&self, object: ObjectId) -> Shape {
        self.objects.get(object.0 as usize).map_or(Shape::plain(Kind::OtherDict), |packed| Shape::unpack(*packed))
    }

    fn set_shape(&mut self, object: ObjectId, shape: Shape) {
        if let Some(packed) = self.objects.get_mut(object.0 as usize) {
            *packed = shape.pack();
        }
    }

    pub(super) fn is_dict(&self, object: ObjectId) -> bool {
        self.shape(object).kind.is_dict()
    }

    // ---- dicts

    /// Puts `pairs` (key, value, key, value, ...) into a dict.
    ///
    /// A dict nearly always comes whole. One that comes in pieces is read on: its row takes later keys as well.
    pub(super) fn set_items(&mut self, dict: ObjectId, pairs: &[Value]) -> Result<(), TableFull> {
        let mut fields = self.spare.take().unwrap_or_else(|| Box::new(Fields::EMPTY));
        fields.clear();
        let shape = self.shape(dict);
        if shape.kind == Kind::Partial
            && let Some(known) = self.partials.get(shape.id as usize)
        {
            (*fields).clone_from(known);
        }
        fields.read(pairs);
        let folded = self.fold(shape, &fields);
        self.spare = Some(fields);
        self.set_shape(dict, folded?);
        Ok(())
    }

    /// Takes `fields` into the row that the dict already is, or finds out what it is.
    fn fold(&mut self, shape: Shape, fields: &Fields) -> Result<Shape, TableFull> {
        let kind = match shape.kind {
            Kind::EmptyDict | Kind::OtherDict | Kind::Partial => match kind_of(fields) {
                Kind::Partial if self.partials.len() >= Self::MAX_PARTIALS => Kind::OtherDict,
                kind => kind,
            },
            known => known,
        };
        let new = kind != shape.kind;
        match kind {
            Kind::Event => {
                let stack = fields.object(Word::Frames).map(|list| self.stack_of(list));
                let row = row_or_new(&mut self.events, shape, new, Event::EMPTY);
                if new {
                    self.event_stacks.push_lean(stack.unwrap_or(NO_STACK));
                } else if let (Some(known), Some(stack)) = (self.event_stacks.get_mut(row), stack) {
                    *known = stack;
                }
                self.seen.event.extend(fields.present());
                if let Some(action) = fields.word(Word::Action) {
                    self.seen.actions.insert(action);
                }
                if let Some(event) = self.events.get_mut(row) {
                    event.apply(fields);
                }
                Shape::row(kind, row)
            }
            Kind::Frame if new => self.fold_frame(fields),
            Kind::Block => {
                self.seen.block.extend(fields.present());
                let history = fields.object(Word::History).and_then(|list| self.first_history(list));
                let stack = fields.object(Word::Frames).map(|list| self.stack_of(list));
                let row = row_or_new(&mut self.blocks, shape, new, Block::EMPTY);
                if let Some(block) = self.blocks.get_mut(row) {
                    block.apply(fields, history, stack);
                }
                self.note_sizes(fields, &[Word::Size, Word::RequestedSize]);
                Shape::row(kind, row)
            }
            Kind::Segment => {
                self.seen.segment.extend(fields.present());
                let private =
                    fields.get(Word::SegmentPoolId).and_then(|pair| self.pair_is_zero(pair)).map(|zero| !zero);
                let blocks = fields.object(Word::Blocks).and_then(|list| self.run_of(list, Kind::Blocks));
                let row = row_or_new(&mut self.segments, shape, new, Segment::default());
                if let Some(segment) = self.segments.get_mut(row) {
                    segment.apply(fields, private, blocks);
                }
                self.note_sizes(fields, &[Word::TotalSize, Word::AllocatedSize, Word::ActiveSize]);
                Shape::row(kind, row)
            }
            Kind::HistoryEntry => {
                let stack = fields.object(Word::Frames).map_or(NO_STACK, |list| self.stack_of(list));
                let empty = History { real_size: None, stack: NO_STACK };
                let row = row_or_new(&mut self.histories, shape, new, empty);
                if let Some(entry) = self.histories.get_mut(row) {
                    entry.real_size = fields.size(Word::RealSize).or(entry.real_size);
                    entry.stack = if stack == NO_STACK { entry.stack } else { stack };
                }
                Shape::row(kind, row)
            }
            Kind::Top => {
                self.seen.top.extend(fields.present());
                let row = row_or_new(&mut self.tops, shape, new, Top::default());
                if let Some(top) = self.tops.get_mut(row) {
                    top.segments = fields.object(Word::Segments).or(top.segments);
                    top.device_traces = fields.object(Word::DeviceTraces).or(top.device_traces);
                }
                Shape::row(kind, row)
            }
            Kind::Partial => {
                let row = row_or_new(&mut self.partials, shape, new, Fields::EMPTY);
                if let Some(known) = self.partials.get_mut(row) {
                    known.clone_from(fields);
                }
                Shape::row(kind, row)
            }
            Kind::OtherDict => {
                self.seen.other.extend(fields.present());
                Ok(Shape::plain(kind))
            }
            _ => Ok(shape),
        }
    }

    fn note_sizes(&mut self, fields: &Fields, words: &[Word]) {
        self.left_out.sizes = self.left_out.sizes.saturating_add(fields.impossible_sizes(words));
    }

    /// Dicts of undecided kind that are kept; no real file has one.
    const MAX_PARTIALS: usize = 1024;

    fn fold_frame(&mut self, fields: &Fields) -> Result<Shape, TableFull> {
        let empty = self.text(b"")?;
        let text = |word| fields.text(word).unwrap_or(empty).0;
        let line = fields.size(Word::Line).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let id = self.frames.intern(&[text(Word::Name), text(Word::Filename), line]).ok_or(TableFull)?;
        Shape::row(Kind::Frame, id as usize)
    }

    // ---- lists

    /// Appends `items` to a list.
    pub(super) fn append(&mut self, list: ObjectId, items: &[Value]) -> Result<(), TableFull> {
        let shape = self.shape(list);
        let kind = match (shape.kind, items.first()) {
            (_, None) => return Ok(()),
            (Kind::EmptyList | Kind::OtherList, Some(first)) => self.list_of(*first),
            (known, _) => known,
        };
        let folded = match kind {
            Kind::Stack => self.append_frames(shape, items)?,
            Kind::Events => self.append_rows(shape, items, kind, Kind::Event)?,
            Kind::Blocks => self.append_rows(shape, items, kind, Kind::Block)?,
            Kind::Segments => self.append_rows(shape, items, kind, Kind::Segment)?,
            Kind::Lists => self.append_lists(shape, items)?,
            Kind::HistoryList if shape.kind == kind => shape,
            Kind::HistoryList => match items.first().and_then(|first| first.as_object()) {
                Some(entry) => Shape { kind, id: self.shape(entry).id },
                None => shape,
            },
            Kind::Numbers => append_numbers(shape, items),
            Kind::OtherList => Shape::plain(kind),
            _ => shape,
        };
        self.set_shape(list, folded);
        Ok(())
    }

    /// The kind of list that begins with `first`.
    fn list_of(&self, first: Value) -> Kind {
        let Some(object) = first.as_object() else {
            return if first.is_number() { Kind::Numbers } else { Kind::OtherList };
        };
        match self.shape(object).kind {
            Kind::Frame => Kind::Stack,
            Kind::Event => Kind::Events,
            Kind::Block => Kind::Blocks,
            Kind::Segment => Kind::Segments,
            Kind::HistoryEntry => Kind::HistoryList,
            kind if !kind.is_dict() => Kind::Lists,
            _ => Kind::OtherList,
        }
    }

    fn append_frames(&mut self, shape: Shape, items: &[Value]) -> Result<Shape, TableFull> {
        self.frame_ids.clear();
        if shape.kind == Kind::Stack {
            // A list that comes in pieces is copied for each; what that may cost is bounded by what was read.
            let known = self.stacks.get(shape.id);
            self.copied_frames = self.copied_frames.saturating_add(known.len() as u64);
            if self.copied_frames > (self.objects.len() as u64).saturating_add(Self::FREE_COPIED_FRAMES) {
                self.left_out.frames = self.left_out.frames.saturating_add(items.len() as u64);
                return Ok(shape);
            }
            self.frame_ids.extend_from_slice(known);
        }
        // Strangers are marked and taken out afterwards, so that the loop over the frames has nothing else to decide.
        let mut frame_ids = std::mem::take(&mut self.frame_ids);
        frame_ids.extend(items.iter().map(|item| self.member(*item, Kind::Frame).unwrap_or(Self::STRANGER)));
        if frame_ids.contains(&Self::STRANGER) {
            let all = frame_ids.len();
            frame_ids.retain(|id| *id != Self::STRANGER);
            self.left_out.strangers =
                self.left_out.strangers.saturating_add(all.saturating_sub(frame_ids.len()) as u64);
        }
        self.frame_ids = frame_ids;
        let id = self.stacks.intern(&self.frame_ids).ok_or(TableFull)?;
        Shape::row(Kind::Stack, id as usize)
    }

    /// The stack that a list is.
    pub(super) fn as_stack(&self, list: ObjectId) -> Option<u32> {
        match self.shape(list) {
            Shape { kind: Kind::Stack, id } => Some(id),
            _ => None,
        }
    }

    /// Makes a new list the stack that another list was.
    pub(super) fn set_stack(&mut self, list: ObjectId, stack: u32) -> Result<(), TableFull> {
        let shape = Shape::row(Kind::Stack, stack as usize)?;
        self.set_shape(list, shape);
        Ok(())
    }

    /// Marks what is not a frame among frame ids.
    const STRANGER: u32 = u32::MAX;

    /// Copies of frames that are always allowed, see [`Heap::append_frames`].
    const FREE_COPIED_FRAMES: u64 = 1 << 20;

    fn append_rows(&mut self, shape: Shape, items: &[Value], list: Kind, member: Kind) -> Result<Shape, TableFull> {
        let known = if shape.kind == list { self.runs.get(shape.id as usize).copied() } else { None };
        let mut run = known;
        for item in items {
            let row = self.member(*item, member);
            let next = row.is_some_and(|row| run.get_or_insert(Run::before(row)).extend(row));
            self.left_out.strangers = self.left_out.strangers.saturating_add(u64::from(!next));
        }
        let Some(run) = run else { return Ok(shape) };
        if known.is_some() {
            if let Some(row) = self.runs.get_mut(shape.id as usize) {
                *row = run;
            }
            return Ok(shape);
        }
        self.runs.push_lean(run);
        Shape::row(list, self.runs.len().saturating_sub(1))
    }

    fn append_lists(&mut self, shape: Shape, items: &[Value]) -> Result<Shape, TableFull> {
        let new = shape.kind != Kind::Lists;
        let row = row_or_new(&mut self.lists, shape, new, Vec::new());
        if let Some(members) = self.lists.get_mut(row) {
            for item in items {
                match item.as_object() {
                    Some(member) => members.push(member),
                    None => self.left_out.strangers = self.left_out.strangers.saturating_add(1),
                }
            }
            self.list_items = self.list_items.saturating_add(items.len());
        }
        Shape::row(Kind::Lists, row)
    }

    /// The row that `value` is, if it is an object of this kind.
    #[inline]
    fn member(&self, value: Value, kind: Kind) -> Option<u32> {
        let packed = *self.objects.get(value.as_object()?.0 as usize)?;
        if packed & Shape::KIND_MASK == kind as u32 { Some(packed >> Shape::KIND_BITS) } else { None }
    }

    fn object_shape(&self, value: Value) -> Option<Shape> {
        value.as_object().map(|object| self.shape(object))
    }

    // ---- what others ask

    /// The stack that a list is, or [`NO_STACK`].
    fn stack_of(&self, list: ObjectId) -> u32 {
        match self.shape(list) {
            Shape { kind: Kind::Stack, id } => id,
            _ => NO_STACK,
        }
    }

    fn first_history(&self, list: ObjectId) -> Option<History> {
        match self.shape(list) {
            Shape { kind: Kind::HistoryList, id } => self.histories.get(id as usize).copied(),
            _ => None,
        }
    }

    /// Whether both numbers of a pair, tuple or list, are 0; `None` if it is no pair.
    fn pair_is_zero(&self, value: Value) -> Option<bool> {
        match value {
            Value::PAIR_OF_ZEROS => Some(true),
            Value::PAIR => Some(false),
            _ => match self.object_shape(value)? {
                Shape { kind: Kind::Numbers, id } if id >> 1 == 2 => Some(id & 1 == 0),
                _ => None,
            },
        }
    }

    fn run_of(&self, list: ObjectId, kind: Kind) -> Option<Run> {
        let shape = self.shape(list);
        if shape.kind == kind { self.runs.get(shape.id as usize).copied() } else { None }
    }

    /// The top-level dict that `object` is, if it is one.
    pub(super) fn top(&self, object: ObjectId) -> Option<Top> {
        match self.shape(object) {
            Shape { kind: Kind::Top, id } => self.tops.get(id as usize).copied(),
            _ => None,
        }
    }

    /// The segments that a list holds; `None` if it is not a list of segments. An empty list holds none.
    pub(super) fn segments_of(&self, list: ObjectId) -> Option<&[Segment]> {
        if self.shape(list).kind == Kind::EmptyList {
            return Some(&[]);
        }
        self.run_of(list, Kind::Segments).map(|run| run.of(&self.segments))
    }

    /// The events that a list holds; `None` if it is not a list of events. An empty list holds none.
    pub(super) fn events_of(&self, list: ObjectId) -> Option<Trace<'_>> {
        if self.shape(list).kind == Kind::EmptyList {
            return Some(Trace::default());
        }
        let run = self.run_of(list, Kind::Events)?;
        Some(Trace { events: run.of(&self.events), stacks: run.of(&self.event_stacks) })
    }

    /// The lists that a list holds; `None` if it holds something else. An empty list holds none.
    pub(super) fn lists_of(&self, list: ObjectId) -> Option<&[ObjectId]> {
        match self.shape(list) {
            Shape { kind: Kind::EmptyList, .. } => Some(&[]),
            Shape { kind: Kind::Lists, id } => self.lists.get(id as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Whether `object` is an empty list.
    pub(super) fn is_empty_list(&self, object: ObjectId) -> bool {
        self.shape(object).kind == Kind::EmptyList
    }

    /// Whether `object` is an event.
    pub(super) fn is_event(&self, object: ObjectId) -> bool {
        self.shape(object).kind == Kind::Event
    }

    /// The ids of a stack's frames, innermost first. Equal frames have equal ids.
    pub(super) fn frame_ids(&self, stack: u32) -> &[u32] {
        self.stacks.get(stack)
    }

    /// How many stacks there are; their ids are the numbers below.
    pub(super) fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// One frame by its id.
    pub(super) fn frame(&self, id: u32) -> (&[u8], &[u8], u32) {
        match self.frames.get(id) {
            [name, file, line] => (self.texts.get(*name), self.texts.get(*file), *line),
            _ => (&[][..], &[][..], 0),
        }
    }

    /// The frames of a stack, innermost first, as (function, file, line).
    pub(super) fn frames(
        &self,
        stack: u32,
    ) -> impl ExactSizeIterator<Item = (&[u8], &[u8], u32)> + DoubleEndedIterator {
        self.stacks.get(stack).iter().map(|frame| self.frame(*frame))
    }
}

/// What a dict with these keys is.
fn kind_of(fields: &Fields) -> Kind {
    let any = |words: &[Word]| words.iter().any(|word| fields.has(*word));
    if any(&[Word::Action]) {
        Kind::Event
    } else if any(&[Word::State]) {
        Kind::Block
    } else if any(&[Word::Filename]) {
        Kind::Frame
    } else if any(&[Word::Blocks, Word::TotalSize, Word::SegmentType]) {
        Kind::Segment
    } else if any(&[Word::RealSize]) {
        Kind::HistoryEntry
    } else if any(&[Word::Segments, Word::DeviceTraces]) {
        Kind::Top
    } else if any(&[Word::Stage, Word::GraphCaptureReuse]) || fields.present().is_empty() {
        Kind::OtherDict
    } else {
        Kind::Partial
    }
}

/// The row that `shape` names, or that of a new `empty` one at the end of `table`.
fn row_or_new<T>(table: &mut Vec<T>, shape: Shape, new: bool, empty: T) -> usize {
    if !new {
        return shape.id as usize;
    }
    table.push_lean(empty);
    table.len().saturating_sub(1)
}

fn append_numbers(shape: Shape, items: &[Value]) -> Shape {
    let (mut count, mut any) = if shape.kind == Kind::Numbers { (shape.id >> 1, shape.id & 1) } else { (0, 0) };
    for item in items {
        count = count.saturating_add(1).min(3);
        any |= u32::from(*item != Value::ZERO);
    }
    Shape { kind: Kind::Numbers, id: count << 1 | any }
}
