//! A TCP proxy on loopback that breaks connections as networks do: cut in the middle of a packet, or silent.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry::threads::{ThreadKind, ThreadSpec, Threads};

use crate::broker::{LIMIT, pause};

/// A running proxy. It ends, with its connections, when dropped.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: u16,
    ended: AtomicBool,
    /// Nothing passes in either direction, and nothing is closed.
    silent: AtomicBool,
    /// The same, and what comes meanwhile passes afterwards.
    held: AtomicBool,
    /// After how many bytes from the client each of the next connections is cut.
    cuts: Mutex<Vec<u64>>,
    made: AtomicU64,
}

impl Proxy {
    /// A proxy to `target`. Its first connections are cut, one after another, after so many bytes from the client.
    pub fn start(target: u16, cuts: &[u64]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared {
            target,
            ended: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            held: AtomicBool::new(false),
            cuts: Mutex::new(cuts.iter().rev().copied().collect()),
            made: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        spawn(move || accept(&listener, &accepting));
        Self { port, shared }
    }

    /// From now on nothing passes any more.
    pub fn fall_silent(&self) {
        self.shared.silent.store(true, Ordering::SeqCst);
    }

    /// Holds back what comes from now on, as a network does that mends what it loses.
    #[cfg(feature = "gstreamer")]
    pub fn hold(&self) {
        self.shared.held.store(true, Ordering::SeqCst);
    }

    /// Lets all pass that was held back, and what follows.
    #[cfg(feature = "gstreamer")]
    pub fn release(&self) {
        self.shared.held.store(false, Ordering::SeqCst);
    }

    /// Number of connections made so far.
    pub fn connections(&self) -> u64 {
        self.shared.made.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.ended.load(Ordering::SeqCst) {
        let Ok((client, _)) = listener.accept() else {
            pause();
            continue;
        };
        shared.made.fetch_add(1, Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(("127.0.0.1", shared.target)) else { continue };
        let cut = shared.cuts.lock().unwrap().pop().unwrap_or(u64::MAX);
        for (from, to, cut) in [(&client, &server, cut), (&server, &client, u64::MAX)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let shared = Arc::clone(shared);
            spawn(move || pass(from, to, cut, &shared));
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut left: u64, shared: &Shared) {
    from.set_nonblocking(false).unwrap();
    from.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut bytes = [0; 4096];
    while !shared.ended.load(Ordering::SeqCst) && left > 0 {
        if shared.silent.load(Ordering::SeqCst) || shared.held.load(Ordering::SeqCst) {
            pause();
            continue;
        }
        let room = usize::try_from(left.min(4096)).unwrap();
        match from.read(&mut bytes[..room]) {
            Ok(0) => break,
            // What was on its way when it fell silent does not arrive.
            Ok(_) if shared.silent.load(Ordering::SeqCst) => (),
            Ok(count) => {
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
                left -= count as u64;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => (),
            Err(_) => break,
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

fn spawn(body: impl FnOnce() + Send + 'static) {
    let spec = ThreadSpec { name: "test/proxy".into(), kind: ThreadKind::Output, limit: LIMIT };
    Threads::new().spawn(spec, |_| body(), |_| ()).unwrap();
}
