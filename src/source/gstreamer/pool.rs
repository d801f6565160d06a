//! The video decoder writes into our memory: a buffer pool and an allocator of our own, offered where a decoder feeds the
//! appsink directly.
//!
//! A buffer of the pool is one slab of the camera's [`SlabPool`]. What makes it worth while is what happens to a picture that
//! the decoder goes on referring to, as every decoder of predicted pictures does: GStreamer's base class wants a buffer of
//! its own to write time stamps on, finds its memory mapped by the decoder, and would copy every picture whole. Our
//! allocator hands out an *alias* instead: another memory of the same slab. Nobody writes to it, since the decoder has
//! finished the picture and the appsink only reads; so the slab must only be kept from the decoder until both are through
//! with it. A buffer that comes back while its slab is held elsewhere is therefore thrown away rather than used again; the
//! slab goes home with its last holder.
//!
//! What was learnt about GStreamer 1.22, and holds from 1.20 on:
//! - A decoder ignores a pool that has not both of the options for video meta and for alignment.
//! - libav's decoders refuse a pool of fewer than 32 buffers at most, so the pool says that it has no bound, and the bound is
//!   the number of slabs.
//! - A memory must be of exactly the size that was asked for, or its pool throws each buffer away.
//! - A decoder puts whatever allocator was proposed beside the pool, or none, into the pool's configuration. Ours is put back
//!   there, and proposed to nobody, so that it only ever sees the sizes of its pool.
//! - libav's decoders ask for memory when the first picture comes out; those that went in before are copied by libav into
//!   our slabs, once a stream ([`CopyReason::Opening`]).
//! - JPEG: jpegdec writes each picture straight into a buffer of the pool and refers to none, so there is nothing to alias.
//! - Raw video (v4l2src, a demuxer of raw frames): no decoder, so no pool is offered. v4l2src hands out the driver's own
//!   buffers, which are read in place.
#![expect(unsafe_code, reason = "an allocator of GStreamer's is a table of C functions")]

use std::cell::UnsafeCell;
use std::mem;
use std::os::raw::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};
use gst::ffi::{GstAllocator, GstMemory};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_video::{BUFFER_POOL_OPTION_VIDEO_ALIGNMENT, BUFFER_POOL_OPTION_VIDEO_META};
use tracing::warn;

use crate::frame::slab::{SharedSlab, SlabPool};
use crate::source::Intake;
use crate::telemetry::CopyReason;

/// What to do when a decoder wants a copy of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    /// Another memory of the same slab: for decoders that never write to a picture once it is out.
    Alias,
    /// Another slab.
    Deep,
}

/// A pool for pictures of these caps, whose memory is the camera's.
///
/// `held` is how many pictures the decoder keeps for itself at most.
///
/// # Errors
/// When the caps describe no picture that a pool can hold.
pub(super) fn new(
    intake: &Arc<Intake>,
    caps: &gst::CapsRef,
    held: usize,
    copying: Copying,
) -> Result<gst::BufferPool, glib::BoolError> {
    let info = gst_video::VideoInfo::from_caps(caps)?;
    let size = u32::try_from(info.size()).map_err(|_| glib::bool_error!("a picture is larger than 4 GiB"))?;
    let allocator: SlabAllocator = glib::Object::new();
    allocator.imp().set_up(Arc::clone(intake), held, copying);
    let pool: PicturePool = glib::Object::new();
    pool.imp().allocator.set(allocator).expect("a pool that was just made has no allocator yet");
    let pool = pool.upcast::<gst::BufferPool>();
    let mut config = pool.config();
    config.set_params(Some(&caps.to_owned()), size, 0, 0);
    config.add_option(BUFFER_POOL_OPTION_VIDEO_META.as_str());
    config.add_option(BUFFER_POOL_OPTION_VIDEO_ALIGNMENT.as_str());
    pool.set_config(config)?;
    Ok(pool)
}

/// The slab that a buffer's picture is in, and whether the decoder keeps it, too; none for a buffer that is not ours.
pub(super) fn slab(buffer: &gst::BufferRef) -> Option<(SharedSlab, IsAlias)> {
    if buffer.n_memory() != 1 {
        return None;
    }
    let memory = buffer.peek_memory(0);
    let shell = shell(memory)?;
    // The offsets of a picture's planes count from the slab's first byte only where its memory begins there.
    let whole = memory.offset() == 0;
    shell.slab.clone().filter(|_| whole).map(|slab| (slab, shell.alias))
}

/// Whether a buffer comes from somebody's pool. One that GStreamer's base class made as a copy of such a buffer does not.
pub(super) fn is_of_a_pool(buffer: &gst::BufferRef) -> bool {
    // SAFETY: a buffer has this field for as long as it lives, and only its owner changes it.
    !unsafe { (*buffer.as_ptr()).pool }.is_null()
}

/// Whether a memory is another one of a slab that the decoder has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IsAlias {
    No,
    Yes,
}

glib::wrapper! {
    /// Memory for a decoder's pictures.
    pub(crate) struct SlabAllocator(ObjectSubclass<imp::SlabAllocator>) @extends gst::Allocator, gst::Object;
}

glib::wrapper! {
    /// Buffers for a decoder's pictures.
    pub(crate) struct PicturePool(ObjectSubclass<imp::PicturePool>)
        @extends gst_video::VideoBufferPool, gst::BufferPool, gst::Object;
}

// SAFETY: as `gst::Allocator`, whose methods may be called on any thread; what it adds is behind a lock.
unsafe impl Send for SlabAllocator {}
// SAFETY: as above.
unsafe impl Sync for SlabAllocator {}

/// A memory as GStreamer sees it, and the slab behind it. Shells are used again, so that a picture costs no allocation.
#[repr(C)]
struct Shell {
    /// First, so that a pointer to it is one to the shell. GStreamer counts its references in there.
    memory: UnsafeCell<mem::MaybeUninit<GstMemory>>,
    /// None in a shell that waits to be used.
    slab: Option<SharedSlab>,
    alias: IsAlias,
}

// SAFETY: a shell that waits is known to nobody, and the one that is in use is GStreamer's, which counts its references.
unsafe impl Send for Shell {}

/// The part of a slab that a memory is.
#[derive(Clone, Copy)]
struct Extent {
    maxsize: usize,
    align: usize,
    offset: usize,
    size: usize,
}

impl Extent {
    fn of(memory: &gst::MemoryRef) -> Self {
        let (maxsize, align) = (memory.maxsize(), memory.align());
        Self { maxsize, align, offset: memory.offset(), size: memory.size() }
    }

    /// The part of this part that begins at `offset`; -1 as its size is all the rest. GStreamer has checked both.
    fn part(self, offset: isize, size: isize) -> Self {
        let from = self.offset.saturating_add_signed(offset);
        let rest = self.size.saturating_add_signed(offset.saturating_neg());
        Self { offset: from, size: usize::try_from(size).unwrap_or(rest), ..self }
    }
}

/// The shell of a memory, where the memory is one of ours.
fn shell(memory: &gst::MemoryRef) -> Option<&Shell> {
    memory.allocator().filter(|allocator| allocator.is::<SlabAllocator>())?;
    // SAFETY: every memory of our allocator is the first field of a shell, which lives as long as the memory; what
    // GStreamer changes in there is behind the cell.
    Some(unsafe { &*memory.as_ptr().cast::<Shell>() })
}

mod imp {
    use super::*;

    /// Shells that wait: more than any decoder has pictures.
    const SHELLS: usize = 64;

    pub(crate) struct SlabAllocator {
        setup: OnceLock<Setup>,
        /// The slabs of the size that the pool was configured for.
        slabs: Mutex<Option<SlabPool>>,
        free: Receiver<Box<Shell>>,
        home: Sender<Box<Shell>>,
    }

    struct Setup {
        intake: Arc<Intake>,
        held: usize,
        copying: Copying,
    }

    impl Default for SlabAllocator {
        fn default() -> Self {
            let (home, free) = bounded(SHELLS);
            Self { setup: OnceLock::new(), slabs: Mutex::new(None), free, home }
        }
    }

    #[glib::object_subclass]
    impl ObjectSubclass for SlabAllocator {
        const NAME: &'static str = "GantrySlabAllocator";
        type Type = super::SlabAllocator;
        type ParentType = gst::Allocator;
    }

    impl ObjectImpl for SlabAllocator {
        fn constructed(&self) {
            self.parent_constructed();
            let allocator = self.as_ptr();
            // SAFETY: the object is being constructed, so nobody else knows it; its first part is a GstAllocator.
            let allocator = unsafe { &mut *allocator };
            allocator.mem_type = c"GantrySlab".as_ptr();
            allocator.mem_map = Some(map);
            allocator.mem_unmap = Some(unmap);
            allocator.mem_copy = Some(copy);
            allocator.mem_share = Some(share);
        }
    }

    impl GstObjectImpl for SlabAllocator {}

    // SAFETY: `alloc` returns a memory of exactly `size` bytes that was initialised by GStreamer, or none; `free` frees it.
    unsafe impl AllocatorImpl for SlabAllocator {
        unsafe fn alloc(&self, size: usize, params: &gst::AllocationParams) -> *mut GstMemory {
            let maxsize = size.saturating_add(params.prefix()).saturating_add(params.padding());
            let slabs = self.slabs.lock().unwrap_or_else(PoisonError::into_inner);
            let fits =
                |slabs: &&SlabPool| maxsize <= slabs.slab_len() && params.align() < crate::memory::ALIGNMENT;
            let Some(slab) = slabs.as_ref().filter(fits).map(SlabPool::lease_or_grow) else {
                drop(slabs);
                return ordinary(size, params);
            };
            let extent = Extent { maxsize, align: params.align(), offset: params.prefix(), size };
            // Without memory the stream breaks and is opened anew, which frees what it holds.
            slab.map_or(ptr::null_mut(), |slab| self.wrap(slab.share(), extent, IsAlias::No))
        }

        unsafe fn free(&self, memory: *mut GstMemory) {
            // SAFETY: GStreamer frees a memory of this allocator once, when nobody refers to it any more, and each was made
            // of a box by `wrap`.
            let mut shell = unsafe { Box::from_raw(memory.cast::<Shell>()) };
            shell.slab = None;
            // Where enough of them wait, it is freed.
            self.home.try_send(shell).ok();
        }
    }

    impl SlabAllocator {
        pub(super) fn set_up(&self, intake: Arc<Intake>, held: usize, copying: Copying) {
            let fresh = self.setup.set(Setup { intake, held, copying }).is_ok();
            assert!(fresh, "an allocator is set up once, where it is made");
        }

        /// Has the slabs made for pictures of `len` bytes. Where there is no memory for them, pictures are in ordinary
        /// memory.
        pub(super) fn make_slabs(&self, len: usize) {
            let setup = self.setup.get().expect("an allocator is set up where it is made");
            let made = setup.intake.slabs(len, setup.held);
            let told = made.inspect_err(|error| {
                warn!(camera = %setup.intake.camera(), "the video decoder keeps its own memory, and copies: {error}");
            });
            *self.slabs.lock().unwrap_or_else(PoisonError::into_inner) = told.ok();
        }

        /// A memory of GStreamer's that is this part of the slab.
        fn wrap(&self, slab: SharedSlab, extent: Extent, alias: IsAlias) -> *mut GstMemory {
            self.wrap_child(slab, extent, alias, ptr::null_mut())
        }

        fn wrap_child(
            &self,
            slab: SharedSlab,
            Extent { maxsize, align, offset, size }: Extent,
            alias: IsAlias,
            parent: *mut GstMemory,
        ) -> *mut GstMemory {
            let mut shell = self.free.try_recv().unwrap_or_else(|_| {
                let memory = UnsafeCell::new(mem::MaybeUninit::zeroed());
                Box::new(Shell { memory, slab: None, alias })
            });
            (shell.slab, shell.alias) = (Some(slab), alias);
            let memory = Box::into_raw(shell).cast::<GstMemory>();
            let flags = if parent.is_null() { 0 } else { gst::ffi::GST_MINI_OBJECT_FLAG_LOCK_READONLY };
            // SAFETY: the memory is the first field of a shell that nobody else knows; the allocator is this one, which
            // GStreamer refers to as long as the memory lives; the part lies within the slab.
            unsafe {
                gst::ffi::gst_memory_init(memory, flags, self.as_ptr(), parent, maxsize, align, offset, size);
            }
            memory
        }

        fn as_ptr(&self) -> *mut GstAllocator {
            self.obj().upcast_ref::<gst::Allocator>().as_ptr()
        }

        /// Another memory with the bytes of this one.
        fn copy(&self, memory: &gst::MemoryRef, slab: &SharedSlab, part: Extent) -> *mut GstMemory {
            let setup = self.setup.get().expect("an allocator is set up where it is made");
            if setup.copying == Copying::Alias {
                return self.wrap(slab.clone(), part, IsAlias::Yes);
            }
            setup.intake.telemetry().pool.copied(1, CopyReason::Decoder);
            let slabs = self.slabs.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(mut fresh) = slabs.as_ref().and_then(SlabPool::lease_or_grow) else {
                return ptr::null_mut();
            };
            drop(slabs);
            let whole = Extent::of(memory);
            let bytes = whole.offset..whole.offset + whole.size;
            fresh[bytes.clone()].copy_from_slice(&slab[bytes]);
            self.wrap(fresh.share(), part, IsAlias::No)
        }
    }

    /// Memory from GStreamer's own allocator.
    fn ordinary(size: usize, params: &gst::AllocationParams) -> *mut GstMemory {
        // SAFETY: without an allocator GStreamer takes its own; the parameters are its own type.
        unsafe { gst::ffi::gst_allocator_alloc(ptr::null_mut(), size, params.as_ptr().cast_mut()) }
    }

    /// The memory that GStreamer passes to one of the functions below.
    ///
    /// # Safety
    /// It is a memory of this allocator, and lives as long as the call.
    unsafe fn ours<'a>(memory: *mut GstMemory) -> (&'a gst::MemoryRef, &'a Shell) {
        // SAFETY: what the caller promises.
        let memory = unsafe { gst::MemoryRef::from_ptr(memory) };
        (memory, shell(memory).expect("GStreamer calls an allocator for its own memory"))
    }

    unsafe extern "C" fn map(memory: *mut GstMemory, _: usize, _: gst::ffi::GstMapFlags) -> *mut c_void {
        // SAFETY: GStreamer maps a memory of this allocator that it refers to.
        let (_, shell) = unsafe { ours(memory) };
        // It adds the offset itself.
        shell.slab.as_ref().map_or(ptr::null_mut(), |slab| slab.start().as_ptr().cast())
    }

    unsafe extern "C" fn unmap(_: *mut GstMemory) {}

    unsafe extern "C" fn copy(memory: *mut GstMemory, offset: isize, size: isize) -> *mut GstMemory {
        // SAFETY: GStreamer copies a memory of this allocator that it refers to.
        let (memory, shell) = unsafe { ours(memory) };
        let (Some(slab), Some(allocator)) = (&shell.slab, memory.allocator()) else { return ptr::null_mut() };
        let allocator =
            allocator.downcast_ref::<super::SlabAllocator>().expect("the memory is one of this allocator");
        allocator.imp().copy(memory, slab, Extent::of(memory).part(offset, size))
    }

    unsafe extern "C" fn share(memory: *mut GstMemory, offset: isize, size: isize) -> *mut GstMemory {
        // SAFETY: GStreamer shares a memory of this allocator that it refers to.
        let (shared, shell) = unsafe { ours(memory) };
        let (Some(slab), Some(allocator)) = (&shell.slab, shared.allocator()) else { return ptr::null_mut() };
        let allocator =
            allocator.downcast_ref::<super::SlabAllocator>().expect("the memory is one of this allocator");
        // A part of a part is a part of the whole.
        let parent = shared.parent().map_or(memory, |parent| parent.as_ptr().cast_mut());
        let part = Extent::of(shared).part(offset, size);
        allocator.imp().wrap_child(slab.clone(), part, shell.alias, parent)
    }

    #[derive(Default)]
    pub(crate) struct PicturePool {
        pub(super) allocator: OnceLock<super::SlabAllocator>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for PicturePool {
        const NAME: &'static str = "GantryPicturePool";
        type Type = super::PicturePool;
        type ParentType = gst_video::VideoBufferPool;
    }

    impl ObjectImpl for PicturePool {}
    impl GstObjectImpl for PicturePool {}

    impl BufferPoolImpl for PicturePool {
        fn options() -> &'static [&'static str] {
            &["GstBufferPoolOptionVideoMeta", "GstBufferPoolOptionVideoAlignment"]
        }

        fn set_config(&self, config: &mut gst::BufferPoolConfigRef) -> bool {
            let params = config.allocator().map(|(_, params)| params).unwrap_or_default();
            config.set_allocator(self.allocator.get(), Some(&params));
            self.parent_set_config(config)
        }

        /// The configuration holds from here on, so the memory is made here, before the first picture.
        fn start(&self) -> bool {
            let config = self.obj().config();
            if let (Some(allocator), Some((_, size, ..)), Some((_, params))) =
                (self.allocator.get(), config.params(), config.allocator())
            {
                allocator.imp().make_slabs(size as usize + params.prefix() + params.padding());
            }
            self.parent_start()
        }

        fn release_buffer(&self, mut buffer: gst::Buffer) {
            let held_elsewhere = (0..buffer.n_memory()).any(|index| {
                let slab = shell(buffer.peek_memory(index)).and_then(|shell| shell.slab.as_ref());
                slab.is_some_and(|slab| !slab.is_only_holder())
            });
            if held_elsewhere && let Some(buffer) = buffer.get_mut() {
                // A pool throws a buffer away whose memory is marked as changed.
                buffer.set_flags(gst::BufferFlags::TAG_MEMORY);
            }
            self.parent_release_buffer(buffer);
        }
    }

    // SAFETY: the table of a video buffer pool begins with that of a buffer pool and adds nothing.
    unsafe impl glib::subclass::types::IsSubclassable<PicturePool> for gst_video::VideoBufferPool {
        fn class_init(class: &mut glib::Class<Self>) {
            let class = class.upcast_ref_mut::<gst::BufferPool>();
            <gst::BufferPool as glib::subclass::types::IsSubclassable<PicturePool>>::class_init(class);
        }
    }
}
