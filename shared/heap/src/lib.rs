//! Memory allocator for a process that runs for milliseconds: an arena in the executable.
//!
//! A plugin allocates some hundred kilobytes and exits. Requesting them from the kernel takes a third of all system calls of a small
//! plugin. Each of these calls may fail; Rust then aborts, and an ADD is not undone. The arena is part of the executable's zeroed data
//! (.bss): it exists from the start, uses a page only when it is touched, and no call can fail. If it is full, memory comes from the
//! system's allocator.

#![warn(missing_docs)]

mod pool;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pool::Pool;

/// In bytes. A plugin uses less than a tenth; a GC with thousands of attachments uses more.
const SIZE: usize = 2 << 20;

/// Minimum alignment of a block, as in malloc(3). The unwinder requires it: it writes 16 bytes at a time into the exception, for which Rust
/// requests an alignment of 8. Otherwise a panic would crash instead of undoing the ADD.
const ALIGN: usize = 16;

/// Whether to use the system's allocator. Global, because a library cannot access the executable's allocator.
static USE_SYSTEM: AtomicBool = AtomicBool::new(false);

/// Uses the system's allocator from now on, which reuses freed memory. For processes that run for long. Earlier blocks stay where they are.
pub fn use_system_allocator() {
    USE_SYSTEM.store(true, Ordering::Relaxed);
}

/// Allocates memory from one end to the other. Only the last block can be freed or grow in place. Vectors and strings behave this way while
/// they are filled.
pub struct Arena {
    /// Bytes in use.
    used: AtomicUsize,
    /// Bytes ever used. The bytes after them are still zero.
    touched: AtomicUsize,
    memory: UnsafeCell<[u8; SIZE]>,
    /// Used when the arena is full.
    pool: Pool,
}

// SAFETY: `used` is atomic, and each part of `memory` has one owner at a time.
#[allow(unsafe_code)]
unsafe impl Sync for Arena {}

impl Arena {
    /// An empty arena, for `#[global_allocator] static`.
    #[allow(clippy::new_without_default, reason = "an arena is a static, not a value")]
    pub const fn new() -> Self {
        Self {
            used: AtomicUsize::new(0),
            touched: AtomicUsize::new(0),
            memory: UnsafeCell::new([0; SIZE]),
            pool: Pool::new(),
        }
    }

    fn start(&self) -> *mut u8 {
        self.memory.get().cast()
    }

    /// Offset of a block in the arena. `None` if the system allocated it.
    fn offset(&self, block: *mut u8) -> Option<usize> {
        block.addr().checked_sub(self.start().addr()).filter(|offset| *offset < SIZE)
    }

    /// Allocates a block. Returns its offset, and the offset of the first byte that was never used. `None` if the block does not fit.
    fn take(&self, layout: Layout) -> Option<(usize, usize)> {
        if USE_SYSTEM.load(Ordering::Relaxed) {
            return None;
        }
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let align = layout.align().max(ALIGN);
            let address = self.start().addr().checked_add(used)?.checked_next_multiple_of(align)?;
            let offset = address - self.start().addr();
            let end = offset.checked_add(layout.size()).filter(|end| *end <= SIZE)?;
            match self.used.compare_exchange_weak(used, end, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some((offset, self.touched.fetch_max(end, Ordering::AcqRel))),
                Err(now) => used = now,
            }
        }
    }

    /// Allocates a block that does not fit into the arena. `None`: the system has to.
    fn take_beyond(&self, layout: Layout) -> Option<*mut u8> {
        if USE_SYSTEM.load(Ordering::Relaxed) { None } else { self.pool.alloc(layout) }
    }

    /// Changes the size of a block if it is the last one.
    fn resize_last(&self, offset: usize, size: usize, new_size: usize) -> bool {
        let (end, Some(new_end)) = (offset + size, offset.checked_add(new_size)) else { return false };
        let moved = || self.used.compare_exchange(end, new_end, Ordering::AcqRel, Ordering::Relaxed);
        let fits = new_end <= SIZE && !(new_size > size && USE_SYSTEM.load(Ordering::Relaxed));
        let resized = fits && moved().is_ok();
        if resized {
            self.touched.fetch_max(new_end, Ordering::AcqRel);
        }
        resized
    }
}

// SAFETY: a block is within `memory`, has the requested alignment and size, and overlaps no other block in use: `used` only moves past a
// block, or back to its start when its owner frees it. All other blocks are the system's.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            // SAFETY: the offset is within `memory`.
            Some((offset, _)) => unsafe { self.start().add(offset) },
            // SAFETY: the caller guarantees the layout.
            None => self.take_beyond(layout).unwrap_or_else(|| unsafe { System.alloc(layout) }),
        }
    }

    /// Writes no zeros to bytes that were never used, so untouched pages of a buffer cost nothing.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            // SAFETY: the offset is within `memory`, and the write is within the block.
            Some((offset, touched)) => unsafe {
                let block = self.start().add(offset);
                block.write_bytes(0, touched.saturating_sub(offset).min(layout.size()));
                block
            },
            None => match self.take_beyond(layout) {
                // SAFETY: the block has the layout's size.
                Some(block) => unsafe {
                    block.write_bytes(0, layout.size());
                    block
                },
                // SAFETY: the caller guarantees the layout.
                None => unsafe { System.alloc_zeroed(layout) },
            },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.offset(block) {
            Some(offset) => {
                self.resize_last(offset, layout.size(), 0);
            }
            None if self.pool.dealloc(block, layout) => {}
            // SAFETY: the block is in neither, so the system allocated it for the same layout.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let is_large_enough = match self.offset(block) {
            Some(offset) => self.resize_last(offset, layout.size(), new_size) || new_size <= layout.size(),
            None => match self.pool.fits(block, layout, new_size) {
                Some(fits) => fits,
                // SAFETY: as in `dealloc`; the caller guarantees the new size.
                None => return unsafe { System.realloc(block, layout, new_size) },
            },
        };
        if is_large_enough {
            return block;
        }
        // SAFETY: the caller guarantees that the new size is a valid layout.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both blocks are at least as large as the old one, and a new block overlaps no block in use.
            unsafe { ptr::copy_nonoverlapping(block, new, layout.size()) };
            self.pool.dealloc(block, layout);
        }
        new
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} of {SIZE} bytes used)", self.used.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::thread;

    use super::*;

    #[global_allocator]
    static HEAP: Arena = Arena::new();

    #[test]
    #[allow(unsafe_code)]
    fn blocks_are_aligned_as_mallocs_are() {
        for size in 1..100 {
            let layout = Layout::from_size_align(size, 1).unwrap();
            // SAFETY: the layout is not of size 0.
            let block = unsafe { HEAP.alloc(layout) };
            assert_eq!(block.addr() % 16, 0, "a block of {size} bytes");
        }
    }

    #[test]
    fn programs_work_on_it_and_beyond_it() {
        let mut map = BTreeMap::new();
        for i in 0..50_000_u32 {
            map.insert(i, i.to_string());
        }
        assert!(map.iter().all(|(i, text)| text.parse() == Ok(*i)));
        let large = vec![7_u8; 3 * SIZE];
        assert!(large.iter().all(|byte| *byte == 7));
    }

    #[test]
    #[allow(unsafe_code)]
    fn zeroed_memory_is_zero_even_if_it_was_used_before() {
        static ARENA: Arena = Arena::new();
        let layout = |size| Layout::from_size_align(size, 1).unwrap();
        // SAFETY: blocks are used within their layouts and not after they are freed.
        unsafe {
            let used = ARENA.alloc(layout(40));
            let grown = ARENA.realloc(used, layout(40), 100);
            grown.write_bytes(7, 100);
            ARENA.dealloc(grown, layout(100));
            let zeros = ARENA.alloc_zeroed(layout(5000));
            assert_eq!(zeros, used, "the memory that was given back");
            assert!((0..5000).all(|at| zeros.add(at).read() == 0));
            let beyond = ARENA.alloc_zeroed(layout(2 * SIZE));
            assert!(ARENA.offset(beyond).is_none() && (0..2 * SIZE).all(|at| beyond.add(at).read() == 0));
            ARENA.dealloc(beyond, layout(2 * SIZE));
        }
    }

    #[test]
    fn a_full_arena_reuses_freed_blocks_and_threads_never_get_the_same_block() {
        static ARENA: Arena = Arena::new();
        ARENA.used.store(SIZE, Ordering::Relaxed);
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: blocks are used within their layouts and not after they are freed.
        #[allow(unsafe_code)]
        let work = |byte: u8| unsafe {
            let mut blocks = Vec::new();
            for round in 0..300_usize {
                let size = 1 + round * 377 % 70_000;
                let block = ARENA.alloc_zeroed(layout(size));
                assert!((0..size).all(|at| block.add(at).read() == 0), "{size}");
                block.write_bytes(byte, size);
                let block = ARENA.realloc(block, layout(size), size * 2);
                block.add(size).write_bytes(byte, size);
                blocks.push((block, size * 2));
                if blocks.len() > 50 {
                    let (block, size) = blocks.swap_remove(round % 50);
                    assert!((0..size).all(|at| block.add(at).read() == byte), "{size}");
                    ARENA.dealloc(block, layout(size));
                }
            }
            blocks.into_iter().for_each(|(block, size)| ARENA.dealloc(block, layout(size)));
        };
        thread::scope(|scope| (1..5).for_each(|byte| drop(scope.spawn(move || work(byte)))));
        let small = layout(100);
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            let block = ARENA.alloc(small);
            assert_eq!(ARENA.pool.fits(block, small, 128), Some(true));
            ARENA.dealloc(block, small);
            assert_eq!(ARENA.alloc(small), block);
        }
    }

    #[test]
    fn threads_never_get_the_same_memory() {
        let fill = |byte: u8| move || (0..200).map(|size| vec![byte; size]).collect::<Vec<_>>();
        let threads: Vec<_> = (0..8_u8).map(|byte| (byte, thread::spawn(fill(byte)))).collect();
        let blocks: Vec<_> =
            threads.into_iter().map(|(byte, thread)| (byte, thread.join().unwrap())).collect();
        assert!(blocks.iter().all(|(byte, blocks)| blocks.iter().flatten().all(|b| b == byte)));
    }

    /// In its own process, because the setting is global.
    #[test]
    fn a_long_running_process_reuses_freed_memory() {
        const ALONE: &str = "HEAP_TEST_STAYS";
        if std::env::var_os(ALONE).is_none() {
            let mut process = std::process::Command::new(std::env::current_exe().unwrap());
            process.args(["--exact", "tests::a_long_running_process_reuses_freed_memory"]);
            assert!(process.env(ALONE, "1").output().unwrap().status.success());
            return;
        }
        let mut before = vec![7_u8; 100];
        use_system_allocator();
        let used = HEAP.used.load(Ordering::Relaxed);
        for size in (0..10_000).map(|n| n % 5000) {
            assert!(vec![8_u8; size].iter().all(|byte| *byte == 8));
        }
        before.extend([7; 4000]);
        assert!(before.iter().all(|byte| *byte == 7));
        assert!(HEAP.used.load(Ordering::Relaxed) <= used);
        assert!(HEAP.offset(before.as_mut_ptr()).is_none());
    }

    #[test]
    #[allow(unsafe_code)]
    fn the_last_block_grows_in_place_and_is_freed() {
        static ARENA: Arena = Arena::new();
        let layout = Layout::from_size_align(96, 8).unwrap();
        // SAFETY: blocks are used within their layouts and not after they are freed.
        unsafe {
            let first = ARENA.alloc(layout);
            assert_eq!(ARENA.realloc(first, layout, 192), first);
            let larger = Layout::from_size_align(192, 8).unwrap();
            let second = ARENA.alloc(layout);
            assert_eq!(second.addr(), first.addr() + 192);
            first.write_bytes(5, 192);
            let moved = ARENA.realloc(first, larger, 304);
            assert!(moved.addr() >= second.addr() + 96);
            assert_eq!(moved.add(191).read(), 5);
            ARENA.dealloc(moved, Layout::from_size_align(304, 8).unwrap());
            assert_eq!(ARENA.alloc(layout), moved);
            let page = ARENA.alloc(Layout::from_size_align(10, 4096).unwrap());
            assert_eq!(page.addr() % 4096, 0);
        }
    }
}
