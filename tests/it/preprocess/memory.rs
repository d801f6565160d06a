//! Pictures and slots whose first and last byte touch pages that nobody may touch.

#![expect(
    unsafe_code,
    reason = "such pages are asked of the kernel, and the memory between them is used as a slice"
)]

use gantry::backend::tensor::{ElementType, ElementsMut};
use gantry::frame::{ColorMatrix, ColorRange, Geometry, LentMemory, Memory, PixelFormat, Plane};
use gantry::preprocess::host::{Held, Preprocessor};
use gantry::preprocess::kernel::Kernel;
use gantry::preprocess::letterbox::RegionConfig;
use gantry::preprocess::{Filter, InputSpec, Layout, Resize};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::{frame_in, spec};

/// Where the memory lies between the two pages.
#[derive(Clone, Copy, Debug)]
enum Touching {
    First,
    Last,
}

/// `len` bytes whose first or last one touches a page that nobody may touch. It is never given back: the process of a
/// test is short.
fn guarded(len: usize, touching: Touching) -> &'static mut [u8] {
    let page = rustix::param::page_size();
    let room = len.next_multiple_of(page);
    let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory that anybody has.
    let mapping =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), room + 2 * page, read_write, private) };
    let first = mapping.unwrap().cast::<u8>();
    for guard in [first, first.wrapping_add(page + room)] {
        // SAFETY: the page belongs to the mapping above, and no reference to it exists.
        unsafe { rustix::mm::mprotect(guard.cast(), page, MprotectFlags::empty()) }.unwrap();
    }
    let start = match touching {
        Touching::First => first.wrapping_add(page),
        Touching::Last => first.wrapping_add(page + room - len),
    };
    // SAFETY: the bytes lie between the two pages, in memory that is zeroed, is never given back, and has no other name.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}

/// A picture of noise. Each plane in turn lies at the far end of the memory when `turn` counts up.
fn picture(base: Geometry, turn: usize, touching: Touching) -> gantry::frame::Frame {
    let (mut geometry, mut offset) = (base, 0);
    let planes = base.format.planes();
    for place in 0..planes {
        let index = (place + turn) % planes;
        let (row, rows) = base.format.plane_size(index, base.width as usize, base.height as usize);
        geometry.planes[index] = Plane { offset, stride: row };
        offset += row * rows;
    }
    let bytes = guarded(geometry.len(), touching);
    fastrand::Rng::with_seed(9).fill(bytes);
    frame_in(geometry, Memory::Lent(LentMemory::new(&*bytes)))
}

#[test]
fn no_kernel_touches_a_byte_outside_of_the_picture_or_the_slot() {
    let types = [(ElementType::F32, Layout::Nchw), (ElementType::U8, Layout::Nhwc)];
    let filters = [Filter::Bilinear, Filter::Area];
    for format in PixelFormat::ALL {
        for (width, height) in [(1, 1), (3, 2), (17, 9), (64, 34), (101, 67)] {
            let geometry = Geometry::packed(format, width, height, ColorMatrix::Bt601, ColorRange::Limited);
            for touching in [Touching::First, Touching::Last] {
                for turn in 0..format.planes() {
                    let picture = picture(geometry, turn, touching);
                    for (kernel, filter) in
                        Kernel::available().into_iter().flat_map(|k| filters.map(|f| (k, f)))
                    {
                        for (element_type, layout) in types {
                            let resize = Resize::Stretch;
                            let spec = InputSpec { element_type, layout, filter, resize, ..spec(43, 13) };
                            let slot = guarded(3 * 43 * 13 * element_type.size(), touching);
                            let slot = ElementsMut::of(element_type, slot);
                            let mut preprocessor = Preprocessor::with_kernel(spec, kernel);
                            let region = RegionConfig::default();
                            preprocessor.write(&picture, region, slot, &mut Held::default()).unwrap();
                        }
                    }
                }
            }
        }
    }
}
