//! The opcodes of Python's pickle: those that a snapshot needs, and the names of all others for refusing them.
//!
//! Source: Python's `pickletools` documentation of protocols 0 to 5.

pub(super) const PROTO: u8 = 0x80;
pub(super) const FRAME: u8 = 0x95;
pub(super) const STOP: u8 = b'.';
pub(super) const MARK: u8 = b'(';
pub(super) const MEMOIZE: u8 = 0x94;
pub(super) const BINPUT: u8 = b'q';
pub(super) const LONG_BINPUT: u8 = b'r';
pub(super) const BINGET: u8 = b'h';
pub(super) const LONG_BINGET: u8 = b'j';
pub(super) const NONE: u8 = b'N';
pub(super) const NEWTRUE: u8 = 0x88;
pub(super) const NEWFALSE: u8 = 0x89;
pub(super) const BININT: u8 = b'J';
pub(super) const BININT1: u8 = b'K';
pub(super) const BININT2: u8 = b'M';
pub(super) const LONG1: u8 = 0x8a;
pub(super) const LONG4: u8 = 0x8b;
pub(super) const BINFLOAT: u8 = b'G';
pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
pub(super) const BINUNICODE: u8 = b'X';
pub(super) const BINUNICODE8: u8 = 0x8d;
pub(super) const EMPTY_DICT: u8 = b'}';
pub(super) const SETITEM: u8 = b's';
pub(super) const SETITEMS: u8 = b'u';
pub(super) const EMPTY_LIST: u8 = b']';
pub(super) const APPEND: u8 = b'a';
pub(super) const APPENDS: u8 = b'e';
pub(super) const EMPTY_TUPLE: u8 = b')';
pub(super) const TUPLE: u8 = b't';
pub(super) const TUPLE1: u8 = 0x85;
pub(super) const TUPLE2: u8 = 0x86;
pub(super) const TUPLE3: u8 = 0x87;

pub(super) const GLOBAL: u8 = b'c';
pub(super) const INST: u8 = b'i';
pub(super) const STACK_GLOBAL: u8 = 0x93;
pub(super) const REDUCE: u8 = b'R';

/// Opcodes that import a name, call something, or build an object of a class: never carried out here, but that an
/// `OrderedDict` reads as a dict.
const RUNS_CODE: [(u8, &str); 14] = [
    (GLOBAL, "GLOBAL"),
    (STACK_GLOBAL, "STACK_GLOBAL"),
    (REDUCE, "REDUCE"),
    (b'b', "BUILD"),
    (0x81, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (INST, "INST"),
    (b'o', "OBJ"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x97, "NEXT_BUFFER"),
];

/// Opcodes without danger that no writer of snapshots uses.
const UNUSED: [(u8, &str); 22] = [
    (b'I', "INT"),
    (b'L', "LONG"),
    (b'F', "FLOAT"),
    (b'S', "STRING"),
    (b'T', "BINSTRING"),
    (b'U', "SHORT_BINSTRING"),
    (b'B', "BINBYTES"),
    (b'C', "SHORT_BINBYTES"),
    (0x8e, "BINBYTES8"),
    (0x96, "BYTEARRAY8"),
    (0x98, "READONLY_BUFFER"),
    (b'V', "UNICODE"),
    (b'd', "DICT"),
    (b'l', "LIST"),
    (0x8f, "EMPTY_SET"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
    (b'0', "POP"),
    (b'1', "POP_MARK"),
    (b'2', "DUP"),
    (b'g', "GET"),
    (b'p', "PUT"),
];

/// The name of an opcode that could run code.
pub(super) fn runs_code(op: u8) -> Option<&'static str> {
    name_in(&RUNS_CODE, op)
}

/// The name of an opcode that exists but has no business in a snapshot.
pub(super) fn unused(op: u8) -> Option<&'static str> {
    name_in(&UNUSED, op)
}

fn name_in(names: &[(u8, &'static str)], op: u8) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == op).map(|(_, name)| *name)
}
