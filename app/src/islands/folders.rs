//! Folders that are dropped onto the page, read to the ground: each file with its path, because that often tells the
//! rank where the name does not (`attempt_0/3/stdout.log`). Knows no form.

use super::dom;
use std::cell::Cell;
use std::rc::Rc;
use wasm_bindgen::JsCast;
use wasm_bindgen::closure::Closure;
use web_sys::{
    DataTransfer, File, FileSystemDirectoryEntry, FileSystemDirectoryReader, FileSystemEntry, FileSystemFileEntry,
};

/// Files that one folder may bring: as many as a server takes at once. A job's folder has some hundreds, one of a thousand
/// ranks a thousand; a home folder dropped by mistake has no end.
const MAX_FILES: usize = 2048;
/// Folders in folders; one that leads into itself ends here.
const MAX_DEPTH: usize = 16;

/// A file, and where it lay in what was dropped.
pub struct Found {
    /// Parts joined by `/`; the bare name of a file that was dropped alone.
    pub path: String,
    /// The file.
    pub file: File,
}

impl Found {
    /// A file that was chosen; chosen with its folder, it knows its path.
    pub fn of_file(file: File) -> Self {
        let path = dom::text(&file, "webkitRelativePath").filter(|path| !path.is_empty());
        Self { path: path.unwrap_or_else(|| file.name()), file }
    }
}

/// What a drop brings: files, and folders that are still to be read. What it carries is gone after the event.
pub fn dropped(data: &DataTransfer) -> (Vec<Found>, Vec<FileSystemDirectoryEntry>) {
    let items = data.items();
    let (mut loose, mut folders) = (Vec::new(), Vec::new());
    for item in (0..items.length()).filter_map(|n| items.get(n)) {
        let folder = item.webkit_get_as_entry().ok().flatten().and_then(as_folder);
        match folder {
            Some(folder) => folders.push(folder),
            None => loose.extend(item.get_as_file().ok().flatten().map(Found::of_file)),
        }
    }
    (loose, folders)
}

/// An entry says what it is: Chromium does not expose its classes, so that nothing can be asked to be an instance of one.
fn as_folder(entry: FileSystemEntry) -> Option<FileSystemDirectoryEntry> {
    entry.is_directory().then(|| entry.unchecked_into())
}

/// Reads a folder: calls `found` for each file, and `refused` with a sentence where something was left out. Hidden
/// files and folders are passed over, as `rankscope diagnose` does, and empty files.
pub fn read(folder: &FileSystemDirectoryEntry, found: impl Fn(Found) + 'static, refused: impl Fn(String) + 'static) {
    let reading = Rc::new(Reading {
        name: folder.name(),
        found: Box::new(found),
        refused: Box::new(refused),
        files: Cell::new(0),
    });
    reading.folder(folder, &folder.name(), 0);
}

struct Reading {
    /// Of the folder that was dropped.
    name: String,
    found: Box<dyn Fn(Found)>,
    refused: Box<dyn Fn(String)>,
    files: Cell<usize>,
}

impl Reading {
    fn folder(self: &Rc<Self>, folder: &FileSystemDirectoryEntry, path: &str, depth: usize) {
        if depth >= MAX_DEPTH {
            (self.refused)(format!("{path} lies {MAX_DEPTH} folders deep and was not read. Drop it by itself."));
            return;
        }
        self.entries(&folder.create_reader(), path.to_owned(), depth);
    }

    /// A browser gives a hundred entries at a time, and none at the end.
    fn entries(self: &Rc<Self>, reader: &FileSystemDirectoryReader, path: String, depth: usize) {
        let (this, again, folder) = (Rc::clone(self), reader.clone(), path.clone());
        let given = Closure::once_into_js(move |entries: js_sys::Array| {
            if entries.length() == 0 {
                return;
            }
            for entry in entries.iter() {
                if !this.entry(entry.unchecked_into(), &folder, depth) {
                    return;
                }
            }
            this.entries(&again, folder, depth);
        });
        let failed = self.failed(path);
        let _ = reader.read_entries_with_callback_and_callback(given.unchecked_ref(), failed.unchecked_ref());
    }

    /// False when there is no room for more.
    fn entry(self: &Rc<Self>, entry: FileSystemEntry, folder: &str, depth: usize) -> bool {
        let name = entry.name();
        if name.starts_with('.') {
            return true;
        }
        let path = format!("{folder}/{name}");
        if !entry.is_file() {
            if let Some(inner) = as_folder(entry) {
                self.folder(&inner, &path, depth.saturating_add(1));
            }
            return true;
        }
        let file: FileSystemFileEntry = entry.unchecked_into();
        let files = self.files.get().saturating_add(1);
        self.files.set(files);
        if files > MAX_FILES {
            if files == MAX_FILES.saturating_add(1) {
                let name = &self.name;
                (self.refused)(format!(
                    "{name} has more than {MAX_FILES} files; the first {MAX_FILES} were taken. Drop the folder of one job."
                ));
            }
            return false;
        }
        let (this, place) = (Rc::clone(self), path.clone());
        // Pipes, sockets and devices look like empty files here, and reading one would break the whole upload.
        let given = Closure::once_into_js(move |file: File| {
            if file.size() > 0.0 {
                (this.found)(Found { path: place, file });
            }
        });
        let failed = self.failed(path);
        file.file_with_callback_and_callback(given.unchecked_ref(), failed.unchecked_ref());
        true
    }

    fn failed(self: &Rc<Self>, path: String) -> wasm_bindgen::JsValue {
        let this = Rc::clone(self);
        Closure::once_into_js(move |_: wasm_bindgen::JsValue| {
            (this.refused)(format!("{path} could not be read by the browser, and is left out."));
        })
    }
}
