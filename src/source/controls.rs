//! The controls of a USB camera: exposure, focus, gain and the like, by the names that `v4l2-ctl --list-ctrls` shows.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A control that is to have a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlConfig {
    /// Its name, as `exposure_time_absolute`.
    pub name: String,
    /// Its value.
    pub value: i32,
}

/// A control that a camera has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Control {
    id: u32,
    name: String,
    least: i64,
    most: i64,
}

/// Sets controls in their order, as one may need another, and says what could not be set as it was asked, in words.
#[must_use]
pub fn set(device: &Path, wanted: &[ControlConfig]) -> Vec<String> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let camera = match File::options().read(true).write(true).open(device) {
        Ok(camera) => camera,
        // Opening it for its pictures tells the same, better.
        Err(_) => return Vec::new(),
    };
    let there = list(&camera);
    let one = |wanted: &ControlConfig| set_one(&camera, &there, wanted).err();
    wanted.iter().filter_map(one).collect()
}

fn set_one(camera: &File, there: &[Control], wanted: &ControlConfig) -> Result<(), String> {
    let ControlConfig { name, value } = wanted;
    let Some(control) = there.iter().find(|control| control.name == *name) else {
        let names: Vec<_> = there.iter().map(|control| control.name.as_str()).collect();
        return Err(format!("it has no control {name}; it has {}", names.join(", ")));
    };
    let Control { id, least, most, .. } = control;
    if !(*least..=*most).contains(&i64::from(*value)) {
        return Err(format!("its control {name} takes {least} to {most}, not {value}"));
    }
    let mut value_of = wire::Value { id: *id, value: *value };
    wire::call(camera, wire::SET, &mut value_of)
        .map_err(|error| format!("it does not take {value} for its control {name}: {error}"))?;
    let mut now = wire::Value { id: *id, value: 0 };
    // Some controls can only be written.
    if wire::call(camera, wire::GET, &mut now).is_ok() && now.value != *value {
        return Err(format!("it makes {} of {value} for its control {name}", now.value));
    }
    Ok(())
}

fn list(camera: &File) -> Vec<Control> {
    let mut controls = Vec::new();
    let mut query = wire::Query::after(0);
    while wire::call(camera, wire::QUERY, &mut query).is_ok() {
        let (id, flags) = (query.id, query.flags);
        if flags & wire::DISABLED == 0 {
            let name = plain(&query.name);
            controls.push(Control { id, name, least: query.minimum, most: query.maximum });
        }
        query = wire::Query::after(id);
    }
    controls
}

/// A driver's name for people, as `v4l2-ctl` writes it: lower case, with `_` for what is neither letter nor digit.
fn plain(name: &[u8]) -> String {
    let text =
        String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).to_lowercase();
    let parts = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("_")
}

/// What goes over to the driver, as `linux/videodev2.h` has it.
mod wire {
    use super::{AsRawFd, File, io};

    /// `V4L2_CTRL_FLAG_NEXT_CTRL`: the one behind that of this id.
    const NEXT: u32 = 0x8000_0000;
    /// `V4L2_CTRL_FLAG_DISABLED`.
    pub(super) const DISABLED: u32 = 1;
    /// `VIDIOC_QUERY_EXT_CTRL`, `VIDIOC_G_CTRL`, `VIDIOC_S_CTRL`.
    pub(super) const QUERY: Request<Query> = Request::new(103);
    pub(super) const GET: Request<Value> = Request::new(27);
    pub(super) const SET: Request<Value> = Request::new(28);

    /// `struct v4l2_query_ext_ctrl`.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, Default)]
    pub(super) struct Query {
        pub(super) id: u32,
        kind: u32,
        pub(super) name: [u8; 32],
        pub(super) minimum: i64,
        pub(super) maximum: i64,
        step: u64,
        default_value: i64,
        pub(super) flags: u32,
        elem_size: u32,
        elems: u32,
        nr_of_dims: u32,
        dims: [u32; 4],
        reserved: [u32; 32],
    }

    impl Query {
        /// Asks for the control behind that of this id.
        pub(super) fn after(id: u32) -> Self {
            Self { id: id | NEXT, ..Self::default() }
        }
    }

    /// `struct v4l2_control`.
    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Value {
        pub(super) id: u32,
        pub(super) value: i32,
    }

    /// A request that reads and writes a `T`.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Request<T>(u32, std::marker::PhantomData<T>);

    impl<T> Request<T> {
        /// `_IOWR('V', number, T)`.
        const fn new(number: u32) -> Self {
            assert!(size_of::<T>() < 1 << 14);
            #[expect(clippy::cast_possible_truncation, reason = "asserted right above")]
            let size = size_of::<T>() as u32;
            Self(3 << 30 | size << 16 | (b'V' as u32) << 8 | number, std::marker::PhantomData)
        }

        /// The number that the kernel knows it by.
        #[cfg(test)]
        pub(super) fn number(self) -> u32 {
            self.0
        }
    }

    /// Asks the driver.
    #[expect(unsafe_code, reason = "no crate here wraps the controls of a camera's driver")]
    pub(super) fn call<T: Copy>(camera: &File, request: Request<T>, argument: &mut T) -> io::Result<()> {
        // Wide or narrow, as the C library has it: the bits are the same.
        let code = request.0 as libc::Ioctl;
        // SAFETY: a request reads and writes one T, which its number says the size of, and `argument` is one. Each T here is
        // plain data as the kernel's header lays it out, in which any bytes are a value.
        let outcome = unsafe { libc::ioctl(camera.as_raw_fd(), code, std::ptr::from_mut(argument)) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_kernels_numbers() {
        assert_eq!(wire::QUERY.number(), 0xc0e8_5667);
        assert_eq!((wire::GET.number(), wire::SET.number()), (0xc008_561b, 0xc008_561c));
    }

    #[test]
    fn names_are_written_as_v4l2_ctl_writes_them() {
        assert_eq!(plain(b"Exposure Time, Absolute\0\0\0"), "exposure_time_absolute");
        assert_eq!(plain(b"White Balance, Auto & Preset"), "white_balance_auto_preset");
        assert_eq!(plain(b"\0"), "");
    }

    #[test]
    fn what_is_no_camera_has_no_controls() {
        let wanted = [ControlConfig { name: "brightness".to_owned(), value: 1 }];
        assert_eq!(set(Path::new("/dev/null"), &wanted), ["it has no control brightness; it has "]);
        assert_eq!(set(Path::new("/dev/null"), &[]), [""; 0]);
    }
}
