//! Memory for processes that need more than the arena: blocks of few sizes, which are reused after they are freed.
//!
//! musl's allocator maps and unmaps memory again and again while a process allocates and frees blocks of changing sizes: a repair of many
//! attachments spent a fifth of its time on that.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Address space in bytes. The kernel provides a page when it is first used.
const SIZE: usize = 64 << 20;

/// The smallest block in bytes. Each class has blocks of twice the size of the one before.
const SMALLEST: usize = 32;
const CLASSES: usize = 12;

/// Blocks of this alignment or less.
const ALIGN: usize = 4096;

/// A region of the system's allocator, cut into blocks. It is never returned.
pub struct Pool {
    is_locked: AtomicBool,
    state: UnsafeCell<State>,
}

struct State {
    /// None: not requested yet. Null: the system does not have so much.
    region: Option<*mut u8>,
    used: usize,
    /// The first free block of each class. It holds the address of the next one.
    free: [*mut u8; CLASSES],
}

// SAFETY: the state is accessed with the lock held, and each block has one owner at a time.
#[allow(unsafe_code)]
unsafe impl Sync for Pool {}

impl Pool {
    pub const fn new() -> Self {
        let state = State { region: None, used: 0, free: [ptr::null_mut(); CLASSES] };
        Self { is_locked: AtomicBool::new(false), state: UnsafeCell::new(state) }
    }

    /// Allocates a block. None if it is too large, or the region is full.
    pub fn alloc(&self, layout: Layout) -> Option<*mut u8> {
        let class = class(layout)?;
        self.with_lock(|state| state.alloc(class))
    }

    /// Frees a block, if it is one of the region.
    pub fn dealloc(&self, block: *mut u8, layout: Layout) -> bool {
        let Some(class) = class(layout) else { return false };
        self.with_lock(|state| state.contains(block) && state.dealloc(block, class))
    }

    /// Whether a block is one of the region, and has room for a new size already. None: it is not one of the region.
    pub fn fits(&self, block: *mut u8, layout: Layout, new_size: usize) -> Option<bool> {
        let class = class(layout)?;
        self.with_lock(|state| state.contains(block)).then(|| new_size <= SMALLEST << class)
    }

    fn with_lock<T>(&self, access: impl FnOnce(&mut State) -> T) -> T {
        while self.is_locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            thread::yield_now();
        }
        // SAFETY: the lock is held: nobody else has a reference to the state.
        #[allow(unsafe_code)]
        let outcome = access(unsafe { &mut *self.state.get() });
        self.is_locked.store(false, Ordering::Release);
        outcome
    }
}

impl State {
    fn region(&mut self) -> *mut u8 {
        *self.region.get_or_insert_with(|| match Layout::from_size_align(SIZE, ALIGN) {
            // SAFETY: the layout is not of size 0.
            #[allow(unsafe_code)]
            Ok(layout) => unsafe { System.alloc(layout) },
            Err(_) => ptr::null_mut(),
        })
    }

    fn contains(&self, block: *mut u8) -> bool {
        let start = self.region.unwrap_or(ptr::null_mut());
        !start.is_null() && block.addr().checked_sub(start.addr()).is_some_and(|offset| offset < SIZE)
    }

    #[allow(unsafe_code)]
    fn alloc(&mut self, class: usize) -> Option<*mut u8> {
        let (size, first) = (SMALLEST << class, self.free[class]);
        if !first.is_null() {
            // SAFETY: a free block holds the address of the next one, or null.
            self.free[class] = unsafe { first.cast::<*mut u8>().read() };
            return Some(first);
        }
        let region = self.region();
        let start = self.used.next_multiple_of(size.min(ALIGN));
        if region.is_null() || start + size > SIZE {
            return None;
        }
        self.used = start + size;
        // SAFETY: the block is within the region, and no other block overlaps it.
        Some(unsafe { region.add(start) })
    }

    #[allow(unsafe_code)]
    fn dealloc(&mut self, block: *mut u8, class: usize) -> bool {
        // SAFETY: a block has room for an address and is aligned for one, and its owner has freed it.
        unsafe { block.cast::<*mut u8>().write(self.free[class]) };
        self.free[class] = block;
        true
    }
}

/// The class whose blocks have room for a layout. None: it is too large.
fn class(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(SMALLEST).checked_next_power_of_two()?;
    let class = (size / SMALLEST).trailing_zeros() as usize;
    (class < CLASSES && layout.align() <= ALIGN).then_some(class)
}
