//! `backend: fake`: a device that does what its script says, and the same each time: for trials without a model's cost,
//! and for tests of overlap, faults and hangs.
//!
//! It is asynchronous, like a GPU: [`Session::submit`] notes when the batch will be done and returns, and
//! [`Session::wait`] returns at that time. Batches of one device run one after the other, whichever session they belong
//! to. It reads no model file; the manifest's shapes are its model.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use super::layout::{Buffer, Layout, elements, reserve};
use super::tensor::{ElementType, Elements, ElementsMut, TensorSpec, TensorView};
use super::{BackendError, BackendKind, Device, DeviceConfig, LoadOptions, ModelFile, Session};
use crate::memory;

/// What the fake backend does. The default takes no time, never fails and finds nothing.
///
/// Batches are counted from the device's opening, over all its sessions; those of a warm-up or a trial count too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FakeScript {
    /// Time that each batch takes.
    pub run_time: Duration,
    /// Time that each frame of a batch takes on top; of a fixed size each of its slots.
    pub run_time_per_frame: Duration,
    /// The only batch sizes that run, each costing its own frames, as with an engine that was built for them; any, when empty.
    pub batch_sizes: Vec<usize>,
    /// Each so-manieth batch of the device fails when it is waited for: 3 fails batches 3, 6, 9, …
    pub fail_every: Option<u64>,
    /// After so many batches of the device, every batch fails when it is waited for.
    pub fail_after: Option<u64>,
    /// After so many batches of the device, waiting for the next one never returns.
    pub hang_after: Option<u64>,
    /// A file of 32-bit little-endian floats that hold the outputs: for each frame all outputs one after the other, then
    /// the next frame; after the last frame it begins again. Each session begins with the first frame. Without it,
    /// outputs are zeros.
    pub outputs: Option<PathBuf>,
}

/// Opens the device. It needs nothing from the machine, so this does not fail.
///
/// # Errors
/// None today; the signature is every backend's.
pub fn open(config: &DeviceConfig) -> Result<Box<dyn Device>, BackendError> {
    let clock = Clock { free_at: Instant::now(), submitted: 0 };
    Ok(Box::new(FakeDevice { script: config.fake.clone(), clock: Rc::new(RefCell::new(clock)) }))
}

impl FakeScript {
    /// Whether the device's batch with this number, from 1, fails.
    fn fails(&self, number: u64) -> bool {
        self.fail_every.is_some_and(|every| every > 0 && number.is_multiple_of(every))
            || self.fail_after.is_some_and(|good| number > good)
    }
}

#[derive(Debug)]
struct FakeDevice {
    script: FakeScript,
    clock: Rc<RefCell<Clock>>,
}

/// What the sessions of a device share.
#[derive(Debug)]
struct Clock {
    /// When the last submitted batch will be done.
    free_at: Instant,
    /// Batches so far.
    submitted: u64,
}

impl Device for FakeDevice {
    fn backend(&self) -> BackendKind {
        BackendKind::Fake
    }

    fn describe(&self) -> String {
        "fake: scripted results, no model runs".to_owned()
    }

    fn load(
        &mut self,
        model: &ModelFile<'_>,
        options: LoadOptions,
    ) -> Result<Box<dyn Session>, BackendError> {
        let session = FakeSession::load(self, model, options);
        session.map(|session| Box::new(session) as _).map_err(|reason| model.bad(BackendKind::Fake, &reason))
    }
}

#[derive(Debug)]
struct FakeSession {
    script: FakeScript,
    clock: Rc<RefCell<Clock>>,
    layout: Layout,
    /// One record for each frame of the script's output file, all of one length.
    records: Vec<Vec<f32>>,
    /// Frames submitted so far.
    frames: usize,
    batches: Vec<Batch>,
}

#[derive(Debug)]
struct Batch {
    input: Buffer,
    outputs: Vec<Output>,
    flight: Option<Flight>,
}

#[derive(Debug)]
struct Output {
    /// The first size is the number of frames that ran.
    shape: Vec<usize>,
    frame_len: usize,
    data: memory::Buffer<f32>,
}

/// A batch that was submitted and not yet waited for.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Its number on the device, from 1.
    number: u64,
    done_at: Instant,
    frames: usize,
    /// The session's number of its first frame, from 0.
    first_frame: usize,
}

impl FakeSession {
    fn load(device: &FakeDevice, model: &ModelFile<'_>, options: LoadOptions) -> Result<Self, String> {
        let input = model.input.ok_or("it has no manifest that declares its input")?;
        if model.outputs.is_empty() {
            return Err("its manifest declares no outputs, and a fake has no others".to_owned());
        }
        let mut layout = Layout::new(input, None, options)?;
        layout.outputs = model.outputs.to_vec();
        if let Some(most) = device.script.batch_sizes.iter().copied().max() {
            if !layout.batch_sizes.is_empty() {
                return Err("its manifest fixes its batch size, and the script has others".to_owned());
            }
            layout.batch_size_max = layout.batch_size_max.min(most);
            layout.batch_sizes.clone_from(&device.script.batch_sizes);
            layout.batch_sizes.sort_unstable();
        }
        let held = layout.batch_size_held();
        let outputs =
            || model.outputs.iter().map(|spec| Output::new(spec, held)).collect::<Result<Vec<_>, _>>();
        let record_len = outputs()?.iter().map(|output| output.frame_len).sum();
        let records = match &device.script.outputs {
            Some(path) => read_records(path, record_len)?,
            None => vec![vec![0.0; record_len]],
        };
        let batch = || Ok(Batch { input: Buffer::zeros(&layout)?, outputs: outputs()?, flight: None });
        let batches = (0..layout.batches).map(|_| batch()).collect::<Result<_, String>>()?;
        Ok(Self {
            script: device.script.clone(),
            clock: Rc::clone(&device.clock),
            layout,
            records,
            frames: 0,
            batches,
        })
    }

    fn start(&mut self, batch: usize, frames: usize) -> Result<(), String> {
        if let Some(refusal) = self.layout.refusal(batch, frames) {
            return Err(refusal);
        }
        if self.batches[batch].flight.is_some() {
            return Err(format!("batch buffer {batch} is in flight"));
        }
        let mut clock = self.clock.borrow_mut();
        let count = u32::try_from(self.layout.batch_size_of(frames)).unwrap_or(u32::MAX);
        let run_time = self.script.run_time + self.script.run_time_per_frame.saturating_mul(count);
        clock.submitted += 1;
        clock.free_at = clock.free_at.max(Instant::now()) + run_time;
        let (number, done_at) = (clock.submitted, clock.free_at);
        self.batches[batch].flight = Some(Flight { number, done_at, frames, first_frame: self.frames });
        self.frames += frames;
        Ok(())
    }

    fn finish(&mut self, batch: usize) -> Result<(), BackendError> {
        let Some(flight) = self.batches.get_mut(batch).and_then(|batch| batch.flight.take()) else {
            let reason = format!("batch buffer {batch} was not submitted");
            return Err(BackendKind::Fake.failed(0, &reason));
        };
        if self.script.hang_after.is_some_and(|after| flight.number > after) {
            loop {
                thread::park();
            }
        }
        // Parking may end early, so the clock decides.
        while let Some(left) =
            flight.done_at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            thread::park_timeout(left);
        }
        if self.script.fails(flight.number) {
            let reason = format!("batch {} of the device, as its script says", flight.number);
            return Err(BackendKind::Fake.failed(flight.frames, &reason));
        }
        self.write_outputs(batch, flight);
        Ok(())
    }

    fn write_outputs(&mut self, batch: usize, flight: Flight) {
        for slot in 0..flight.frames {
            let mut record = self.records[(flight.first_frame + slot) % self.records.len()].as_slice();
            for output in &mut self.batches[batch].outputs {
                let (own, rest) = record.split_at(output.frame_len);
                output.data[slot * output.frame_len..(slot + 1) * output.frame_len].copy_from_slice(own);
                output.shape[0] = flight.frames;
                record = rest;
            }
        }
    }
}

impl Session for FakeSession {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn slot(&mut self, batch: usize, slot: usize) -> ElementsMut<'_> {
        assert!(slot < self.layout.batch_size_max, "slot {slot} of {}", self.layout.batch_size_max);
        self.batches[batch].input.slot(slot)
    }

    fn submit(&mut self, batch: usize, frames: usize) -> Result<(), BackendError> {
        self.start(batch, frames).map_err(|reason| BackendKind::Fake.failed(frames, &reason))
    }

    fn wait(&mut self, batch: usize) -> Result<(), BackendError> {
        self.finish(batch)
    }

    fn output(&self, batch: usize, index: usize) -> TensorView<'_> {
        let output = &self.batches[batch].outputs[index];
        let len = output.frame_len * output.shape[0];
        TensorView { shape: &output.shape, elements: Elements::F32(&output.data[..len]) }
    }
}

impl Output {
    fn new(spec: &TensorSpec, frames: usize) -> Result<Self, String> {
        let shape = spec.shape.with_batch(frames).filter(|_| spec.element_type == ElementType::F32);
        let refused = || format!("a fake makes outputs of f32 of which only the batch is open, not `{spec}`");
        let shape = shape.ok_or_else(refused)?;
        let frame_len = elements(&shape[1..]).ok_or_else(refused)?;
        let len = frame_len.checked_mul(frames).ok_or_else(refused)?;
        Ok(Self { shape, frame_len, data: reserve(len)? })
    }
}

fn read_records(path: &Path, record_len: usize) -> Result<Vec<Vec<f32>>, String> {
    let bytes = std::fs::read(path)
        .map_err(|error| format!("the script's outputs {} cannot be read: {error}", path.display()))?;
    let record_bytes = record_len * size_of::<f32>();
    if bytes.is_empty() || record_bytes == 0 || bytes.len() % record_bytes != 0 {
        return Err(format!(
            "the script's outputs {} have {} bytes; each frame takes {record_bytes}",
            path.display(),
            bytes.len()
        ));
    }
    let float = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    let record = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(float).collect();
    Ok(bytes.chunks_exact(record_bytes).map(record).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tensor::Shape;
    use crate::backend::{BackendChoice, BatchSizes, ModelFormat};
    use crate::threads::{ThreadKind, ThreadSpec, Threads};

    fn spec(name: &str, dims: &[i64]) -> TensorSpec {
        TensorSpec { name: name.into(), element_type: ElementType::F32, shape: Shape::new(dims) }
    }

    fn device(script: FakeScript) -> Box<dyn Device> {
        open(&DeviceConfig {
            id: "fake0".into(),
            backend: BackendChoice::Named(BackendKind::Fake),
            threads: 1,
            library: None,
            fake: script,
        })
        .unwrap()
    }

    fn load(device: &mut dyn Device, outputs: &[TensorSpec]) -> Result<Box<dyn Session>, BackendError> {
        let input = spec("images", &[-1, 3, 2, 2]);
        let model = ModelFile {
            name: "line-parts 1.0.0",
            path: Path::new("model.onnx"),
            bytes: &[],
            format: ModelFormat::Onnx,
            input: Some(&input),
            outputs,
        };
        device.load(&model, LoadOptions { batch_size_max: 4, batches: 3 })
    }

    fn session(script: FakeScript) -> Box<dyn Session> {
        load(&mut *device(script), &[spec("boxes", &[-1, 2]), spec("scores", &[-1, 1])]).unwrap()
    }

    #[test]
    fn a_batch_runs_while_another_is_filled_and_the_device_takes_one_at_a_time() {
        let run_time = Duration::from_millis(150);
        let mut session = session(FakeScript { run_time, ..FakeScript::default() });
        assert!(session.is_asynchronous());
        let start = Instant::now();
        session.submit(0, 1).unwrap();
        session.submit(1, 4).unwrap();
        let ElementsMut::F32(slot) = session.slot(2, 3) else { panic!("f32 was declared") };
        assert_eq!(slot.len(), 12);
        assert!(start.elapsed() < run_time, "neither submit waits");
        session.wait(1).unwrap();
        assert!(start.elapsed() >= 2 * run_time, "the second batch began after the first");
        session.wait(0).unwrap();
        assert_eq!((session.output(0, 0).shape, session.output(1, 1).shape), (&[1, 2][..], &[4, 1][..]));
    }

    #[test]
    fn each_frame_costs_its_time() {
        let run_time_per_frame = Duration::from_millis(10);
        let mut session = session(FakeScript { run_time_per_frame, ..FakeScript::default() });
        let start = Instant::now();
        session.submit(0, 4).unwrap();
        session.wait(0).unwrap();
        assert!(start.elapsed() >= 4 * run_time_per_frame);
    }

    #[test]
    fn a_fixed_size_costs_all_its_slots_and_gives_the_outputs_of_its_frames() {
        let script = FakeScript {
            run_time_per_frame: Duration::from_millis(10),
            batch_sizes: vec![4, 1],
            ..FakeScript::default()
        };
        let mut session = session(script);
        assert_eq!(session.batch_sizes(), BatchSizes::Fixed(&[1, 4]));
        for (frames, slots) in [(1, 1), (2, 4)] {
            let start = Instant::now();
            session.submit(0, frames).unwrap();
            session.wait(0).unwrap();
            let took = start.elapsed();
            assert!(took >= slots * Duration::from_millis(10), "{frames} frames in {took:?}");
            assert_eq!(session.output(0, 0).shape, [frames, 2]);
        }
    }

    #[test]
    fn outputs_come_from_the_file_frame_by_frame_and_begin_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let floats: Vec<u8> =
            [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(file.path(), floats).unwrap();
        let mut session = session(FakeScript { outputs: Some(file.path().into()), ..FakeScript::default() });
        for (first, boxes, scores) in [(1, [1.0, 2.0], 3.0), (2, [4.0, 5.0], 6.0), (3, [4.0, 5.0], 6.0)] {
            session.submit(0, first).unwrap();
            session.wait(0).unwrap();
            assert_eq!(session.output(0, 0).frame_f32(0).unwrap(), (&[2][..], &boxes[..]));
            assert_eq!(session.output(0, 1).frame_f32(0).unwrap(), (&[1][..], &[scores][..]));
        }
    }

    #[test]
    fn a_file_that_does_not_fit_the_outputs_is_told_with_both_sizes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0; 13]).unwrap();
        let script = FakeScript { outputs: Some(file.path().into()), ..FakeScript::default() };
        let error = load(&mut *device(script), &[spec("boxes", &[-1, 3])]).unwrap_err().to_string();
        assert!(error.contains("13 bytes") && error.contains("takes 12"), "{error}");
    }

    #[test]
    fn outputs_that_are_not_declared_whole_are_refused() {
        for (outputs, words) in
            [(vec![], "declares no outputs"), (vec![spec("boxes", &[-1, -1, 6])], "only the batch is open")]
        {
            let error = load(&mut *device(FakeScript::default()), &outputs).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn each_third_batch_fails_and_the_others_do_not() {
        let mut session = session(FakeScript { fail_every: Some(3), ..FakeScript::default() });
        let failed: Vec<bool> = (0..9)
            .map(|turn| {
                session.submit(turn % 2, 1).unwrap();
                session.wait(turn % 2).is_err()
            })
            .collect();
        assert_eq!(failed, [false, false, true, false, false, true, false, false, true]);
    }

    #[test]
    fn every_batch_after_the_last_good_one_fails_in_whichever_session() {
        let mut device = device(FakeScript { fail_after: Some(3), ..FakeScript::default() });
        let outputs = [spec("boxes", &[-1, 2])];
        let mut sessions = [0, 1].map(|_| load(&mut *device, &outputs).unwrap());
        let mut failed = Vec::new();
        for turn in 0..7 {
            let session = &mut sessions[turn % 2];
            session.submit(0, 1).unwrap();
            failed.push(session.wait(0).is_err());
        }
        assert_eq!(failed, [false, false, false, true, true, true, true]);
        let mut none = session(FakeScript { fail_after: Some(0), ..FakeScript::default() });
        none.submit(0, 1).unwrap();
        assert!(none.wait(0).unwrap_err().to_string().contains("batch 1 of the device"));
    }

    #[test]
    fn a_batch_is_submitted_once_and_waited_for_once() {
        let mut session = session(FakeScript::default());
        assert!(session.wait(0).unwrap_err().to_string().contains("was not submitted"));
        session.submit(0, 1).unwrap();
        assert!(session.submit(0, 1).unwrap_err().to_string().contains("in flight"));
        session.wait(0).unwrap();
        assert!(session.wait(0).is_err());
    }

    #[test]
    fn the_batch_after_the_last_good_one_never_returns() {
        let (told, reached) = crossbeam_channel::bounded(1);
        let threads = Threads::new();
        let limit = Duration::from_millis(1);
        let spec = ThreadSpec { name: "dev/fake0".into(), kind: ThreadKind::Device, limit };
        let body = move |heartbeat: crate::threads::Heartbeat| {
            let mut session = session(FakeScript { hang_after: Some(1), ..FakeScript::default() });
            session.submit(0, 1).unwrap();
            session.wait(0).unwrap();
            session.submit(0, 1).unwrap();
            heartbeat.beat();
            told.send(()).unwrap();
            drop(session.wait(0));
        };
        let thread = threads.spawn(spec, body, |_| ()).unwrap();
        reached.recv_timeout(Duration::from_secs(60)).expect("the first batch runs");
        assert!(thread.join_timeout(Duration::from_millis(100)).is_err(), "the thread is still inside");
        assert_eq!(
            threads.stuck(Instant::now() + Duration::from_secs(1)).len(),
            1,
            "and the watchdog sees it"
        );
    }
}
