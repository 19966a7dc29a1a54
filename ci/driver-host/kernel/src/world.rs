// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clock and scheduler of a test.
//!
//! Each work item, interrupt or call of a process is a thread of its own, and exactly one thread runs at a time: a thread
//! that sleeps, waits or is preempted hands over to the main thread, which says who is next. Without a random source that
//! is who has waited longest, and nobody is preempted; with one it is anybody. Time stands still while somebody can run.

use crate::error::{Error, code::ENOENT};
use crate::pci::io::Registers;
use berth_random::Rng;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Thread};

/// Steps of the scheduler after which a test counts as one that does not end.
const MOST_STEPS: u64 = 500_000;
/// Nanoseconds after which what is waited for counts as something that does not come.
const LONG: u64 = 60_000_000_000;

/// What is moved to another thread although its type does not say so: only one thread runs at a time.
struct Moved<T>(T);

// SAFETY: Threads hand over to each other, so nothing is used by two of them at once.
unsafe impl<T> Send for Moved<T> {}

impl<T> Moved<T> {
    fn get(self) -> T {
        self.0
    }
}

/// What a thread waits for, and from when on that is so at the latest.
type Condition = (Box<dyn Fn() -> bool>, u64);

/// What a thread does.
type Act = Box<dyn FnOnce()>;

/// What a thread that was started does next.
struct Orders {
    work: Mutex<Option<Moved<Act>>>,
    go: AtomicBool,
    end: AtomicBool,
}

/// A thread that has handed over.
struct Task {
    orders: Arc<Orders>,
    thread: Thread,
    key: usize,
    ready: Moved<Condition>,
}

/// Work that has not begun.
struct Job {
    key: usize,
    due: u64,
    work: Moved<Act>,
}

/// Hardware, which does something when it is asked to; false if there is nothing to do.
pub type Machine = Arc<dyn Fn() -> bool>;

/// Lines of the log that are kept: the last ones.
const LINES: usize = 1000;

/// What a driver finds on its machine.
struct Outside {
    registers: Option<Arc<dyn Registers>>,
    unbound: bool,
    /// A firmware image and its name.
    image: (&'static str, Result<Vec<u8>, Error>),
    /// Images that are held.
    images: u32,
    log: Vec<String>,
}

struct State {
    now: u64,
    tasks: Vec<Task>,
    jobs: Vec<Job>,
    running: Vec<usize>,
    idle: Vec<(Arc<Orders>, Thread)>,
    rng: Option<Rng>,
    machine: Option<Moved<Machine>>,
    outside: Moved<Outside>,
    user: Option<Arc<dyn Any + Send + Sync>>,
    /// Condition of the thread that hands over just now; `None` if it has ended.
    handed: Option<Moved<Condition>>,
    panic: Option<Box<dyn Any + Send>>,
    steps: u64,
    order: BTreeSet<(&'static str, &'static str)>,
    sleeping: u64,
}

/// The world of a test.
pub struct World {
    main: Thread,
    back: AtomicBool,
    state: Mutex<State>,
    /// One in so many takings of a lock is a place where another thread goes on; 0 none.
    preempt: Mutex<u64>,
    /// One in so many allocations that may wait, and that may not, fails; 0 none.
    fail: Mutex<[u64; 2]>,
    failed: Mutex<u64>,
    /// So many of these that come next fail.
    fail_next: Mutex<[u64; 2]>,
    /// Of those that may wait, this one fails: 1 the next.
    fail_nth: Mutex<u64>,
}

thread_local! {
    static WORLD: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
    static IS_MAIN: Cell<bool> = const { Cell::new(false) };
    static ORDERS: RefCell<Option<Arc<Orders>>> = const { RefCell::new(None) };
    static KEY: Cell<usize> = const { Cell::new(0) };
    /// Spin locks that this thread holds, by name.
    static SPINS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    /// Other locks that it holds.
    static HELD: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    /// It must not sleep for another reason.
    static ATOMIC: Cell<u32> = const { Cell::new(0) };
    static CALM: Cell<u32> = const { Cell::new(0) };
}

/// The world that this thread belongs to.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn world() -> Arc<World> {
    WORLD.with_borrow(|w| w.clone()).expect("a world was made")
}

/// What the test has in its world.
///
/// # Panics
///
/// If that is of another type.
#[must_use]
pub fn user<T: Any + Send + Sync>() -> Arc<T> {
    let user = world().state().user.clone();
    user.and_then(|user| user.downcast().ok()).expect("the test has one")
}

impl World {
    /// A world for this thread, its main one; without a random source if there is no seed.
    #[must_use]
    pub fn begin(seed: Option<u64>) -> Arc<Self> {
        let state = State {
            now: 1_000_000_000,
            tasks: Vec::new(),
            jobs: Vec::new(),
            running: Vec::new(),
            idle: Vec::new(),
            rng: seed.map(Rng),
            machine: None,
            outside: Moved(Outside {
                registers: None,
                unbound: false,
                image: ("", Err(ENOENT)),
                images: 0,
                log: Vec::new(),
            }),
            user: None,
            handed: None,
            panic: None,
            steps: 0,
            order: BTreeSet::new(),
            sleeping: 0,
        };
        let world = Arc::new(Self {
            main: thread::current(),
            back: AtomicBool::new(false),
            state: Mutex::new(state),
            preempt: Mutex::new(0),
            fail: Mutex::new([0; 2]),
            failed: Mutex::new(0),
            fail_next: Mutex::new([0; 2]),
            fail_nth: Mutex::new(0),
        });
        WORLD.set(Some(world.clone()));
        IS_MAIN.set(true);
        SPINS.take();
        HELD.take();
        world
    }

    /// Ends it: its threads, and all that belongs to the test.
    pub fn end(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        for (orders, thread) in idle {
            orders.end.store(true, SeqCst);
            orders.go.store(true, SeqCst);
            thread.unpark();
        }
        let left = {
            let mut state = self.state();
            (state.machine.take(), state.outside.0.registers.take(), state.user.take())
        };
        drop(left);
        WORLD.set(None);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Says what the hardware is.
    pub fn set_machine(&self, machine: Machine) {
        self.state().machine = Some(Moved(machine));
    }

    /// Says what the registers of the device are.
    pub fn set_registers(&self, registers: Arc<dyn Registers>) {
        self.state().outside.0.registers = Some(registers);
    }

    pub(crate) fn registers(&self) -> Arc<dyn Registers> {
        self.state().outside.0.registers.clone().expect("the device has registers")
    }

    /// The device is unbound, or bound again.
    pub fn set_unbound(&self, unbound: bool) {
        self.state().outside.0.unbound = unbound;
    }

    pub(crate) fn is_unbound(&self) -> bool {
        self.state().outside.0.unbound
    }

    /// Says what the firmware image of a name is, or why there is none.
    pub fn set_image(&self, name: &'static str, image: Result<Vec<u8>, Error>) {
        self.state().outside.0.image = (name, image);
    }

    pub(crate) fn image(&self, name: &str) -> Result<Vec<u8>, Error> {
        let outside = &mut self.state().outside.0;
        if outside.image.0 != name {
            return Err(ENOENT);
        }
        let image = outside.image.1.clone()?;
        outside.images += 1;
        Ok(image)
    }

    pub(crate) fn image_goes(&self) {
        self.state().outside.0.images -= 1;
    }

    /// Firmware images that are held.
    #[must_use]
    pub fn images(&self) -> u32 {
        self.state().outside.0.images
    }

    /// Writes a line into the log.
    pub fn note(&self, line: String) {
        let log = &mut self.state().outside.0.log;
        if log.len() == LINES {
            log.remove(0);
        }
        log.push(line);
    }

    /// The log; it begins anew.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.state().outside.0.log)
    }

    /// Keeps something of the test's, which [`user`] gives.
    pub fn set_user(&self, user: Arc<dyn Any + Send + Sync>) {
        self.state().user = Some(user);
    }

    /// One in `n` takings of a lock is a place where another thread goes on; 0 none.
    pub fn set_preempt(&self, n: u64) {
        *lock(&self.preempt) = n;
    }

    /// One in so many allocations that may wait (`kernel`), or that may not (`atomic`), fails; 0 none.
    pub fn set_failures(&self, kernel: u64, atomic: u64) {
        *lock(&self.fail) = [kernel, atomic];
    }

    /// So many allocations that come next fail: those that may wait, and those that may not.
    pub fn fail_next(&self, kernel: u64, atomic: u64) {
        *lock(&self.fail_next) = [kernel, atomic];
    }

    /// Of the allocations that may wait the `n`th from now fails, and no other; 0 none. Gives how many were still to come.
    pub fn fail_nth(&self, n: u64) -> u64 {
        std::mem::replace(&mut *lock(&self.fail_nth), n)
    }

    /// Nanoseconds since the world began.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.state().now
    }

    /// Lets time pass in which nothing else happens.
    pub fn pass(&self, ns: u64) {
        self.state().now += ns;
    }

    /// A random number below `n`; 0 without a random source.
    #[must_use]
    pub fn below(&self, n: u64) -> u64 {
        self.state().rng.as_mut().map_or(0, |rng| rng.below(n))
    }

    /// How often something has slept so far.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        self.state().sleeping
    }

    /// Whether work has not begun or not ended.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let state = self.state();
        !state.jobs.is_empty() || !state.tasks.is_empty()
    }

    /// Number of threads that are in the middle of something.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.state().tasks.len()
    }

    /// Has work done by a thread of its own, from `due` on; not while other work with the same key, unless 0, is done.
    pub fn add_job(&self, key: usize, due: u64, work: impl FnOnce() + 'static) {
        self.state().jobs.push(Job { key, due, work: Moved(Box::new(work)) });
    }

    /// Has a call done by a thread of its own, now.
    pub fn spawn(&self, work: impl FnOnce() + 'static) {
        let now = self.now();
        self.add_job(0, now, work);
    }

    /// Takes work back that has not begun; whether there was some. What it holds goes.
    pub fn cancel_job(&self, key: usize) -> bool {
        let job = {
            let mut state = self.state();
            let at = state.jobs.iter().position(|j| j.key == key);
            at.map(|at| state.jobs.remove(at))
        };
        job.is_some()
    }

    /// Whether work with this key is being done.
    #[must_use]
    pub fn is_running(&self, key: usize) -> bool {
        self.state().running.contains(&key)
    }

    /// Waits until `ready` says so.
    pub fn wait(&self, ready: impl Fn() -> bool + 'static) {
        might_sleep();
        self.state().sleeping += 1;
        if IS_MAIN.get() {
            self.run_until(ready);
        } else {
            self.hand_over(Some(Moved((Box::new(ready), u64::MAX))));
        }
    }

    /// Waits for a time.
    pub fn sleep(&self, ns: u64) {
        might_sleep();
        self.state().sleeping += 1;
        let end = self.now() + ns;
        if IS_MAIN.get() {
            self.run_for(ns);
        } else {
            self.hand_over(Some(Moved((Box::new(move || world().now() >= end), end))));
        }
    }

    /// A place where another thread may go on, if nothing keeps this one from it.
    pub fn preempt(&self) {
        if CALM.get() > 0 {
            return;
        }
        let one_in = *lock(&self.preempt);
        if one_in == 0 || SPINS.with_borrow(|s| !s.is_empty()) || self.below(one_in) != 0 {
            return;
        }
        if IS_MAIN.get() {
            self.run_one();
        } else {
            self.hand_over(Some(Moved((Box::new(|| true), 0))));
        }
    }

    fn hand_over(&self, condition: Option<Moved<Condition>>) {
        let orders = ORDERS.with_borrow(|o| o.clone()).expect("this is a thread of the world");
        self.state().handed = condition;
        self.back.store(true, SeqCst);
        self.main.unpark();
        while !orders.go.swap(false, SeqCst) {
            thread::park();
        }
    }

    /// Goes on with a thread until it hands over again.
    fn resume(&self, orders: Arc<Orders>, thread: Thread, key: usize) {
        orders.go.store(true, SeqCst);
        thread.unpark();
        while !self.back.swap(false, SeqCst) {
            thread::park();
        }
        let panic = {
            let mut state = self.state();
            match state.handed.take() {
                Some(ready) => state.tasks.push(Task { orders, thread, key, ready }),
                None => {
                    if let Some(at) = state.running.iter().position(|k| *k == key) {
                        state.running.remove(at);
                    }
                    state.idle.push((orders, thread));
                }
            }
            state.panic.take()
        };
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn worker(self: Arc<Self>, orders: Arc<Orders>) {
        WORLD.set(Some(self.clone()));
        ORDERS.set(Some(orders.clone()));
        loop {
            while !orders.go.swap(false, SeqCst) {
                thread::park();
            }
            if orders.end.load(SeqCst) {
                WORLD.set(None);
                return;
            }
            let work = lock(&orders.work).take().expect("there is work").get();
            let result = catch_unwind(AssertUnwindSafe(work));
            if let Err(panic) = result {
                self.state().panic = Some(panic);
            }
            self.state().handed = None;
            self.back.store(true, SeqCst);
            self.main.unpark();
        }
    }

    fn start(self: &Arc<Self>, job: Job) {
        let idle = {
            let mut state = self.state();
            state.running.push(job.key);
            state.idle.pop()
        };
        let (orders, thread) = idle.unwrap_or_else(|| {
            let orders =
                Arc::new(Orders { work: Mutex::new(None), go: AtomicBool::new(false), end: AtomicBool::new(false) });
            let (this, mine) = (self.clone(), orders.clone());
            let handle = thread::Builder::new().stack_size(1 << 19).spawn(move || this.worker(mine));
            let thread = handle.expect("a thread").thread().clone();
            (orders, thread)
        });
        let key = job.key;
        *lock(&orders.work) = Some(job.work);
        self.resume(orders, thread, key);
    }

    /// Lets one thing happen. Whether there was anything left that happens by itself.
    ///
    /// # Panics
    ///
    /// As what happens does, or if that does not end.
    pub fn run_one(&self) -> bool {
        self.step(u64::MAX)
    }

    /// The same, but goes on in time to `most` at the most.
    pub fn step(&self, most: u64) -> bool {
        let this = world();
        {
            let mut state = self.state();
            state.steps += 1;
            assert!(state.steps < MOST_STEPS, "it does not end");
            if let Some(rng) = &mut state.rng
                && rng.below(8) == 0
            {
                // What happens takes time.
                let ns = rng.below(50_000);
                state.now += ns;
            }
        }
        // What is ready, looked at without the state: conditions look at the world.
        let tasks = std::mem::take(&mut self.state().tasks);
        let ready: Vec<bool> = tasks.iter().map(|t| (t.ready.0.0)()).collect();
        let machine = {
            let mut state = self.state();
            let more = std::mem::replace(&mut state.tasks, tasks);
            state.tasks.extend(more);
            state.machine.as_ref().map(|m| Moved(m.0.clone()))
        };
        enum Next {
            Task(usize),
            Job(usize),
            Machine,
        }
        let mut all: Vec<Next> = (0..ready.len()).filter(|n| ready[*n]).map(Next::Task).collect();
        {
            let state = self.state();
            let due = |j: &Job| j.due <= state.now && (j.key == 0 || !state.running.contains(&j.key));
            all.extend(state.jobs.iter().enumerate().filter(|(_, j)| due(j)).map(|(n, _)| Next::Job(n)));
        }
        if let Some(machine) = machine {
            let (count, random) = (all.len() as u64, self.state().rng.is_some());
            // It does something, if it can: in turns with the others, or as often as two of them.
            let first = if random { self.below(count + 2) < 2 } else { self.state().steps.is_multiple_of(2) };
            if (first || all.is_empty()) && machine.get()() {
                return true;
            }
            all.push(Next::Machine);
        }
        if all.iter().all(|n| matches!(n, Next::Machine)) {
            return self.skip(most);
        }
        let count = all.len() as u64 - u64::from(matches!(all.last(), Some(Next::Machine)));
        let pick = if self.state().rng.is_some() { self.below(count) as usize } else { 0 };
        match all[pick] {
            Next::Task(n) => {
                let task = self.state().tasks.remove(n);
                this.resume(task.orders, task.thread, task.key);
            }
            Next::Job(n) => {
                let job = self.state().jobs.remove(n);
                this.start(job);
            }
            Next::Machine => {}
        }
        true
    }

    /// Nothing can happen at this time: goes on to when something is due, at most to `most`.
    fn skip(&self, most: u64) -> bool {
        let mut state = self.state();
        let due = state.jobs.iter().map(|j| j.due).chain(state.tasks.iter().map(|t| t.ready.0.1));
        let next = due.filter(|due| *due > state.now && *due != u64::MAX).min();
        let Some(next) = next.filter(|next| *next <= most) else { return false };
        state.now = next;
        true
    }

    /// Goes on until `done` says so.
    ///
    /// # Panics
    ///
    /// If nothing is left that could bring it about.
    pub fn run_until(&self, done: impl Fn() -> bool) {
        let end = self.now() + LONG;
        while !done() {
            assert!(self.run_one() && self.now() < end, "waits for what does not come");
        }
    }

    /// Goes on for a time, to its end.
    pub fn run_for(&self, ns: u64) {
        let end = self.now() + ns;
        while self.step(end) {
            if self.now() > end {
                return;
            }
        }
        let mut state = self.state();
        state.now = state.now.max(end);
    }

    /// Goes on until nothing is left to do at this time.
    pub fn settle(&self) {
        let now = self.now();
        while self.step(now) {}
    }

    /// Allocations that have failed.
    pub fn failed(&self) -> u64 {
        *lock(&self.failed)
    }

    /// Whether an allocation fails.
    pub fn fails(&self, may_wait: bool) -> bool {
        let fails = self.is_to_fail(may_wait);
        *lock(&self.failed) += u64::from(fails);
        fails
    }

    fn is_to_fail(&self, may_wait: bool) -> bool {
        let which = usize::from(!may_wait);
        let mut nth = lock(&self.fail_nth);
        if may_wait && *nth > 0 {
            *nth -= 1;
            if *nth == 0 {
                return true;
            }
        }
        drop(nth);
        let mut next = lock(&self.fail_next);
        if next[which] > 0 {
            next[which] -= 1;
            return true;
        }
        drop(next);
        let one_in = lock(&self.fail)[which];
        one_in != 0 && self.below(one_in) == 0
    }

    /// Notes in which order locks are taken.
    fn note_order(&self, name: &'static str) {
        let held: Vec<_> =
            SPINS.with_borrow(|s| s.clone()).into_iter().chain(HELD.with_borrow(|h| h.clone())).collect();
        let mut state = self.state();
        for before in held {
            assert!(before != name, "{name} is taken by who holds one");
            assert!(
                !state.order.contains(&(name, before)),
                "{name} is taken under {before}, and elsewhere the reverse"
            );
            state.order.insert((before, name));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// This thread is about to do what may take long.
///
/// # Panics
///
/// If it must not.
pub fn might_sleep() {
    SPINS.with_borrow(|spins| assert!(spins.is_empty(), "sleeps under {spins:?}"));
    assert!(ATOMIC.get() == 0, "sleeps where it must not");
}

/// What `f` does must not sleep.
pub fn atomically<T>(f: impl FnOnce() -> T) -> T {
    ATOMIC.set(ATOMIC.get() + 1);
    let result = f();
    ATOMIC.set(ATOMIC.get() - 1);
    result
}

/// Nothing else happens while `f` looks at something.
pub fn calmly<T>(f: impl FnOnce() -> T) -> T {
    CALM.set(CALM.get() + 1);
    let result = f();
    CALM.set(CALM.get() - 1);
    result
}

pub(crate) fn take_spin(name: &'static str) {
    let world = world();
    world.preempt();
    world.note_order(name);
    SPINS.with_borrow_mut(|s| s.push(name));
}

pub(crate) fn leave_spin(name: &'static str) {
    SPINS.with_borrow_mut(|s| {
        if let Some(at) = s.iter().rposition(|n| *n == name) {
            s.remove(at);
        }
    });
}

pub(crate) fn take_mutex(name: &'static str) {
    might_sleep();
    let world = world();
    world.preempt();
    world.note_order(name);
    HELD.with_borrow_mut(|s| s.push(name));
}

pub(crate) fn leave_mutex(name: &'static str) {
    HELD.with_borrow_mut(|s| {
        if let Some(at) = s.iter().rposition(|n| *n == name) {
            s.remove(at);
        }
    });
}
