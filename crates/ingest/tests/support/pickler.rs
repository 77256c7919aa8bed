//! A small pickle writer for tests: what Python and torch write, from values made in Rust.
#![allow(dead_code)] // each test file uses a part

use std::collections::HashMap;

/// A Python value. Texts are remembered and referred to.
#[derive(Debug, Clone)]
pub enum Py {
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Py>),
    Dict(Vec<(&'static str, Py)>),
    Pair(i64, i64),
    /// One object in many places: written where its number is first met, then referred to.
    Shared(u32, Box<Py>),
}

/// How the writer works.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// 2 to 5; from 4 on with MEMOIZE, below with BINPUT.
    pub protocol: u8,
    /// Items per APPENDS or SETITEMS. Python takes 1000, torch's C++ writer all.
    pub batch: usize,
}

/// The pickle of `value`.
pub fn pickle(value: &Py, style: Style) -> Vec<u8> {
    let mut writer =
        Writer { out: vec![0x80, style.protocol], texts: Vec::new(), shared: HashMap::new(), stored: 0, style };
    writer.put(value);
    writer.out.push(b'.');
    writer.out
}

struct Writer {
    out: Vec<u8>,
    texts: Vec<(String, u32)>,
    shared: HashMap<u32, u32>,
    stored: u32,
    style: Style,
}

impl Writer {
    fn store(&mut self) -> u32 {
        if self.style.protocol >= 4 {
            self.out.push(0x94);
        } else if let Ok(index) = u8::try_from(self.stored) {
            self.out.extend([b'q', index]);
        } else {
            self.out.push(b'r');
            self.out.extend(self.stored.to_le_bytes());
        }
        self.stored += 1;
        self.stored - 1
    }

    fn recall(&mut self, index: u32) {
        if let Ok(index) = u8::try_from(index) {
            self.out.extend([b'h', index]);
        } else {
            self.out.push(b'j');
            self.out.extend(index.to_le_bytes());
        }
    }

    fn put(&mut self, value: &Py) {
        match value {
            Py::Int(n) => self.int(*n),
            Py::Float(n) => {
                self.out.push(b'G');
                self.out.extend(n.to_be_bytes());
            }
            Py::Shared(number, value) => {
                if let Some(index) = self.shared.get(number) {
                    self.recall(*index);
                } else {
                    // A container is stored first, before its members.
                    self.shared.insert(*number, self.stored);
                    self.put(value);
                }
            }
            Py::Text(text) => self.text(text),
            Py::Pair(a, b) => {
                self.int(*a);
                self.int(*b);
                self.out.push(0x86);
                self.store();
            }
            Py::List(items) => {
                self.out.push(b']');
                self.store();
                for batch in items.chunks(self.style.batch) {
                    if let [only] = batch {
                        self.put(only);
                        self.out.push(b'a');
                    } else {
                        self.out.push(b'(');
                        for item in batch {
                            self.put(item);
                        }
                        self.out.push(b'e');
                    }
                }
            }
            Py::Dict(pairs) => {
                self.out.push(b'}');
                self.store();
                for batch in pairs.chunks(self.style.batch) {
                    let single = batch.len() == 1;
                    if !single {
                        self.out.push(b'(');
                    }
                    for (key, value) in batch {
                        self.text(key);
                        self.put(value);
                    }
                    self.out.push(if single { b's' } else { b'u' });
                }
            }
        }
    }

    fn int(&mut self, n: i64) {
        if let Ok(n) = u8::try_from(n) {
            self.out.extend([b'K', n]);
        } else if let Ok(n) = u16::try_from(n) {
            self.out.push(b'M');
            self.out.extend(n.to_le_bytes());
        } else if let Ok(n) = i32::try_from(n) {
            self.out.push(b'J');
            self.out.extend(n.to_le_bytes());
        } else {
            self.out.extend([0x8a, 8]);
            self.out.extend(n.to_le_bytes());
        }
    }

    fn text(&mut self, text: &str) {
        if let Some((_, index)) = self.texts.iter().find(|(known, _)| known == text) {
            self.recall(*index);
            return;
        }
        // The tests' texts are short.
        let [length, ..] = text.len().to_le_bytes();
        if self.style.protocol >= 4 {
            self.out.extend([0x8c, length]);
        } else {
            self.out.extend([b'X', length, 0, 0, 0]);
        }
        self.out.extend(text.as_bytes());
        let index = self.store();
        self.texts.push((text.to_owned(), index));
    }
}
