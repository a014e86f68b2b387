#!/usr/bin/env -S python3 -B
"""cargo and rustc build a small crate offline and run its tests; the program they build is equal and runs under hakmem.

rustc from Debian allocates through libc and so through hakmem. Upstream's has a malloc of its own linked in: then the
library is only loaded there, which the test says, and cargo, the linker and the crate's program remain.
"""

import os
import shutil

from program_test import ProgramTest, same

MANIFEST = """
[package]
name = "work"
version = "0.1.0"
edition = "2021"
[profile.release]
codegen-units = 4
[profile.test]
opt-level = 1
"""

LIBRARY = r"""
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

#[derive(Debug, Clone, PartialEq)]
pub enum Tree<T> { Leaf, Node(Box<Tree<T>>, T, Box<Tree<T>>) }

impl<T: PartialOrd + Clone + Debug> Tree<T> {
    pub fn insert(self, value: T) -> Self {
        match self {
            Tree::Leaf => Tree::Node(Box::new(Tree::Leaf), value, Box::new(Tree::Leaf)),
            Tree::Node(left, here, right) if value < here => Tree::Node(Box::new(left.insert(value)), here, right),
            Tree::Node(left, here, right) => Tree::Node(left, here, Box::new(right.insert(value))),
        }
    }
    pub fn walk(&self, out: &mut Vec<T>) {
        if let Tree::Node(left, here, right) = self { left.walk(out); out.push(here.clone()); right.walk(out); }
    }
}

pub fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    })
}

pub fn work(seed: u64, count: usize) -> u64 {
    let mut words: BTreeMap<String, Vec<Rc<str>>> = BTreeMap::new();
    let mut counts: HashMap<u64, VecDeque<Box<[u8]>>> = HashMap::new();
    let mut tree = Tree::Leaf;
    for number in numbers(seed).take(count) {
        words.entry(format!("{:x}", number % 5000)).or_default().push(Rc::from(format!("{}-{}", number, seed)));
        let queue = counts.entry(number % 100).or_default();
        queue.push_back(vec![number as u8; (number % 3000) as usize].into_boxed_slice());
        if queue.len() > 20 { queue.pop_front(); }
        if number % 8 == 0 { tree = tree.insert(number); }
    }
    let mut sorted = Vec::new();
    tree.walk(&mut sorted);
    assert!(sorted.windows(2).all(|pair| pair[0] <= pair[1]));
    words.values().flatten().map(|word| word.len() as u64).sum::<u64>() * 31
        + counts.values().flatten().map(|bytes| bytes.len() as u64).sum::<u64>() + sorted.len() as u64
}

pub fn threads(count: u64) -> Vec<(u64, u64)> {
    let (sender, receiver) = mpsc::channel::<Box<(u64, u64)>>();    // boxes freed by another thread than made them
    let seen = Arc::new(Mutex::new(Vec::new()));
    let workers: Vec<_> = (0..count).map(|n| {
        let (sender, seen) = (sender.clone(), Arc::clone(&seen));
        thread::spawn(move || {
            seen.lock().unwrap().push(n.to_string());
            sender.send(Box::new((n, work(n, 100_000)))).unwrap()
        })
    }).collect();
    drop(sender);
    let mut results: Vec<_> = receiver.iter().map(|result| *result).collect();
    for worker in workers { worker.join().unwrap(); }
    assert_eq!(seen.lock().unwrap().len() as u64, count);
    results.sort();
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test] fn trees_keep_all() {
        let mut out = vec![];
        numbers(1).take(900).fold(Tree::Leaf, Tree::insert).walk(&mut out);
        assert_eq!(out.len(), 900);
    }
    #[test] fn work_repeats() { assert_eq!(work(5, 20_000), work(5, 20_000)); }
    #[test] fn threads_agree() { assert_eq!(threads(4), threads(4)); }
}
"""

PROGRAM = "fn main() { for (n, sum) in work::threads(6) { println!(\"{n} {sum}\"); } }\n"

with ProgramTest("cargo", "rustc", "gcc") as test:
    crate = test.dir / "crate"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text(MANIFEST)
    (crate / "src/lib.rs").write_text(LIBRARY)
    (crate / "src/main.rs").write_text(PROGRAM)

    # Where the toolchain is a rustup one, it is found through the real home directory.
    settings = {"HOME": os.environ.get("HOME", "/"), "CARGO_HOME": str(test.dir / "cargo"), "CARGO_BUILD_JOBS": "2"}
    for hakmem, out in (False, "plain"), (True, "hakmem"):
        test.run(["cargo", "build", "--release", "--offline"], hakmem, env=settings, cwd=crate,
                 loaded=["cargo", "rustc"], own_malloc=["rustc"])
        shutil.move(crate / "target/release/work", test.dir / out)
        shutil.rmtree(crate / "target")
    same("program", test.dir / "plain", test.dir / "hakmem")
    test.both([test.dir / "hakmem"], loaded=["hakmem"])
    test.run(["cargo", "test", "--offline"], True, env=settings, cwd=crate)
