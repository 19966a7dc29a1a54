// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For build scripts: work on several things at once, as many as cargo gives jobs (`NUM_JOBS`).

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::thread;

/// `work` of each item, in the items' order, or an error of one; nothing new is begun after that.
pub fn side_by_side<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let jobs = std::env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(NonZeroUsize::MIN).get();
    let count = items.len();
    let items = Mutex::new(items.into_iter().enumerate());
    let done = Mutex::new(Ok(Vec::with_capacity(count)));
    thread::scope(|scope| {
        for _ in 0..jobs.min(count) {
            scope.spawn(|| {
                while done.lock().is_ok_and(|done| done.is_ok()) {
                    let Some((at, item)) = items.lock().ok().and_then(|mut items| items.next()) else { return };
                    let result = work(item);
                    let Ok(mut done) = done.lock() else { return };
                    match (&mut *done, result) {
                        (Ok(done), Ok(result)) => done.push((at, result)),
                        (done @ Ok(_), Err(error)) => *done = Err(error),
                        (Err(_), _) => (),
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|_| "a thread of the build panicked".to_owned())??;
    done.sort_by_key(|&(at, _)| at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
