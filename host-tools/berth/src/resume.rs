// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an interrupted one-sided copy has finished: one line in `FILE.berth`, beside the local file.
//!
//! The line names the copy, and how many bytes from its start on are done. What it says is on its medium before the
//! line is written, so that it holds whatever ends the process or the host.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::ends::Peer;
use crate::failure::Failure;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// From the peer to here.
    Get,
    /// From here to the peer.
    Put,
}

impl Verb {
    /// The command's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
        }
    }
}

/// A copy: only one that is equal goes on where another has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Which way.
    pub verb: Verb,
    /// Who serves the other file.
    pub peer: Peer,
    /// Of the file that is read: another number if it has been written to meanwhile.
    pub stamp: u64,
    /// Bytes, by their place in both files.
    pub range: Range<u64>,
}

/// What is done of a copy, and the file that says so.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    file: File,
    copy: Copy,
    /// Bytes before this place are done.
    done: u64,
}

impl State {
    /// A new copy from or to `local`; with `resume` one that goes on where an equal one has ended, if there was one.
    pub fn begin(local: &Path, copy: Copy, resume: bool) -> Result<Self, Failure> {
        let mut path = local.as_os_str().to_owned();
        path.push(".berth");
        let path = PathBuf::from(path);
        let done = if resume { done_of(&path, &copy)? } else { None }.unwrap_or(copy.range.start);
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path);
        let file = file.map_err(|e| Failure::File(path.clone(), e))?;
        let state = Self { path, file, copy, done };
        state.save()?;
        Ok(state)
    }

    /// The copy.
    pub fn copy(&self) -> &Copy {
        &self.copy
    }

    /// Bytes before this place are done.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes before `done` are done, and on their medium.
    pub fn reach(&mut self, done: u64) -> Result<(), Failure> {
        self.done = done;
        self.save()
    }

    /// The copy is complete, or has not begun: nothing is left of the state.
    pub fn remove(self) -> Result<(), Failure> {
        fs::remove_file(&self.path).map_err(|e| Failure::File(self.path, e))
    }

    /// All lines of a copy are equally long, so that a later one replaces an earlier one with one write.
    fn save(&self) -> Result<(), Failure> {
        let line = line(&self.copy, self.done);
        self.file.write_all_at(line.as_bytes(), 0).map_err(|e| Failure::File(self.path.clone(), e))
    }
}

/// What the state at `path` says to be done of `copy`; `None` when there is no state.
fn done_of(path: &Path, copy: &Copy) -> Result<Option<u64>, Failure> {
    let refused = |text: &str| Failure::Kind(path.to_owned(), text.into());
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(e) => return Err(Failure::File(path.to_owned(), e)),
    };
    let (of, done) = parse(&text)
        .ok_or_else(|| refused("this is not the state of an interrupted copy: copy anew, without --resume"))?;
    if of == *copy {
        return Ok(Some(done));
    }
    let same = Copy { stamp: copy.stamp, ..of };
    Err(refused(if same == *copy {
        "the file to be copied has changed since the copy was interrupted: copy anew, without --resume"
    } else {
        "another copy was interrupted here (peer, direction or range differ): finish that one, or copy without --resume"
    }))
}

fn line(copy: &Copy, done: u64) -> String {
    let Copy { verb, peer, stamp, range } = copy;
    format!("berth-copy 1 {} {peer} {stamp} {} {} {done:020}\n", verb.name(), range.start, range.end)
}

fn parse(text: &str) -> Option<(Copy, u64)> {
    let mut words = text.strip_prefix("berth-copy 1 ")?.strip_suffix('\n')?.split(' ');
    let verb = match words.next()? {
        "get" => Verb::Get,
        "put" => Verb::Put,
        _ => return None,
    };
    let peer = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (stamp, start, end, done) = (number()?, number()?, number()?, number()?);
    let good = start <= done && done <= end && words.next().is_none();
    good.then_some((Copy { verb, peer, stamp, range: start..end }, done))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_random::{Rng, seed};

    fn copy() -> Copy {
        Copy { verb: Verb::Get, peer: "192.0.2.2:7".parse().unwrap(), stamp: 1 << 63, range: 5..60_000 }
    }

    fn local(name: &str) -> (PathBuf, PathBuf) {
        let path = std::env::temp_dir().join(format!("berth-resume-{}-{name}", std::process::id()));
        let state = path.with_file_name(format!("{}.berth", path.file_name().unwrap().to_str().unwrap()));
        (path, state)
    }

    #[test]
    fn a_copy_goes_on_where_an_equal_one_has_ended() {
        let (file, path) = local("equal");
        let begin = |copy, resume| State::begin(&file, copy, resume);
        let mut first = begin(copy(), true).unwrap();
        assert_eq!((first.done(), first.copy()), (5, &copy()), "there is nothing to go on with");
        first.reach(40_000).unwrap();
        drop(first);
        let mut second = begin(copy(), true).unwrap();
        assert_eq!(second.done(), 40_000);
        second.reach(60_000).unwrap();
        drop(second);
        assert_eq!(begin(copy(), true).unwrap().done(), 60_000);
        let anew = begin(copy(), false).unwrap();
        assert_eq!(anew.done(), 5);
        anew.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn the_state_of_another_copy_is_refused_and_stays() {
        let (file, path) = local("other");
        State::begin(&file, copy(), false).unwrap().reach(6).unwrap();
        let before = fs::read(&path).unwrap();
        for (other, says) in [
            (Copy { stamp: 4, ..copy() }, "has changed since"),
            (Copy { verb: Verb::Put, ..copy() }, "another copy"),
            (Copy { peer: "192.0.2.2:8".parse().unwrap(), ..copy() }, "another copy"),
            (Copy { range: 5..60_001, ..copy() }, "another copy"),
        ] {
            let text = State::begin(&file, other, true).unwrap_err().to_string();
            assert!(text.starts_with(path.to_str().unwrap()) && text.contains(says), "{text}");
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        for bad in [&b"user's own\n"[..], b"", b"\xff\xfe"] {
            fs::write(&path, bad).unwrap();
            let text = State::begin(&file, copy(), true).unwrap_err().to_string();
            assert!(text.contains("not the state of an interrupted copy"), "{text}");
            assert_eq!(fs::read(&path).unwrap(), bad);
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn malformed_states_are_refused() {
        let good = line(&copy(), 60_000);
        assert_eq!(parse(&good), Some((copy(), 60_000)));
        assert_eq!(good.len(), line(&copy(), 5).len());
        assert_eq!(parse(&line(&copy(), 60_001)), None);
        assert_eq!(parse(&line(&copy(), 4)), None);
        for bad in [&good[..good.len() - 1], &good.replace("copy 1", "copy 2"), &good.replace('\n', " 1\n")] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let mut rng = Rng(seed(4));
        for _ in 0..2000 {
            let mut bytes = good.clone().into_bytes();
            for _ in 0..3 {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = 32 + rng.below(95) as u8;
            }
            if let Some((copy, done)) = parse(&String::from_utf8(bytes).unwrap()) {
                assert!(copy.range.start <= done && done <= copy.range.end);
            }
        }
    }
}
