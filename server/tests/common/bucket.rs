//! A server that speaks as S3 does, over a folder: in the process of the test, on a thread of its own, on the loopback
//! interface. It checks signatures and sums, and can be told to break off.
#![allow(dead_code, clippy::unwrap_used)] // each user needs a part; a test that cannot begin should say so at once

use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread::JoinHandle,
};
use tokio::sync::oneshot;

/// Its one bucket.
pub const BUCKET: &str = "team";
/// Who may use it.
pub const KEY: &str = "RANKSCOPETESTKEY";
/// With which secret.
pub const SECRET: &str = "hunter2-and-more";

pub struct BucketServer {
    root: PathBuf,
    address: SocketAddr,
    trouble: Arc<Trouble>,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// What goes wrong on purpose.
#[derive(Default)]
struct Trouble {
    /// The connection ends when this part of a file comes; 0: none.
    at_part: AtomicU32,
    /// This part of a file is never answered; 0: none.
    stalls_at: AtomicU32,
    /// Parts of files that came.
    parts: AtomicU32,
}

impl BucketServer {
    /// Starts one with an empty bucket below `root`.
    pub fn start(root: &Path) -> Self {
        fs::create_dir_all(root.join(BUCKET)).unwrap();
        let mut server = Self {
            root: root.to_path_buf(),
            address: "127.0.0.1:0".parse().unwrap(),
            trouble: Arc::default(),
            running: None,
        };
        server.start_again();
        server
    }

    /// Where it listens.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it; nobody listens there then.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            thread.join().unwrap();
        }
    }

    /// At the same address, with what was there.
    pub fn start_again(&mut self) {
        self.stop();
        let listener = TcpListener::bind(self.address).unwrap();
        self.address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (root, trouble) = (self.root.clone(), Arc::clone(&self.trouble));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, &root, trouble) => {}
                    _ = stopped => {}
                }
            });
        });
        self.running = Some((stop, thread));
    }

    /// From now on the connection ends when this part of a file comes; 0: no more.
    pub fn break_at_part(&self, part: u32) {
        self.trouble.at_part.store(part, SeqCst);
    }

    /// From now on this part of a file gets no answer; 0: no more.
    pub fn stall_at_part(&self, part: u32) {
        self.trouble.stalls_at.store(part, SeqCst);
    }

    /// Parts of files that came so far.
    pub fn parts(&self) -> u32 {
        self.trouble.parts.load(SeqCst)
    }

    /// All keys of the bucket, in order.
    pub fn keys(&self) -> Vec<String> {
        let bucket = self.root.join(BUCKET);
        let mut keys: Vec<String> = files_of(&bucket)
            .iter()
            .map(|path| path.strip_prefix(&bucket).unwrap().to_str().unwrap().to_owned())
            .collect();
        keys.sort();
        keys
    }

    /// Uploads in parts that were begun and not ended.
    pub fn uploads(&self) -> usize {
        self.beside_the_bucket(".upload-")
    }

    /// Parts of files that belong to no object.
    pub fn parts_left(&self) -> usize {
        self.beside_the_bucket(".upload_id-")
    }

    fn beside_the_bucket(&self, beginning: &str) -> usize {
        let names = fs::read_dir(&self.root).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with(beginning)).count()
    }

    /// A file with credentials, in the form of `~/.aws/credentials`.
    pub fn credentials(&self) -> PathBuf {
        self.write_credentials("credentials", SECRET)
    }

    /// The same with another secret.
    pub fn credentials_with(&self, secret: &str) -> PathBuf {
        self.write_credentials("other-credentials", secret)
    }

    fn write_credentials(&self, name: &str, secret: &str) -> PathBuf {
        let path = self.root.join(name);
        let text = format!("[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {secret}\n");
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let below = |path: PathBuf| if path.is_dir() { files_of(&path) } else { vec![path] };
    entries.flat_map(|entry| below(entry.unwrap().path())).collect()
}

async fn serve(listener: TcpListener, root: &Path, trouble: Arc<Trouble>) {
    let mut builder = S3ServiceBuilder::new(FileSystem::new(root).unwrap());
    builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
    let s3 = builder.build();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let (s3, trouble) = (s3.clone(), Arc::clone(&trouble));
        let service = service_fn(move |request: Request<Incoming>| {
            let part = part_of(request.uri().query().unwrap_or_default());
            if part > 0 {
                trouble.parts.fetch_add(1, SeqCst);
            }
            let is_to_break = part > 0 && part == trouble.at_part.load(SeqCst);
            let is_to_stall = part > 0 && part == trouble.stalls_at.load(SeqCst);
            let s3 = s3.clone();
            async move {
                if is_to_break {
                    return Err(io::Error::other("broken off on purpose"));
                }
                if is_to_stall {
                    std::future::pending::<()>().await;
                }
                s3.call(request.map(s3s::Body::from)).await.map_err(|error| io::Error::other(format!("{error:?}")))
            }
        });
        tokio::spawn(async move {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn part_of(query: &str) -> u32 {
    let number = query.split('&').find_map(|pair| pair.strip_prefix("partNumber="));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
