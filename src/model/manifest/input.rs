//! The section `input` of a manifest.

use super::{ALIGNS, BATCH_MAX, COLORS, ELEMENTS_MAX, FILTERS, Field, Fields, LAYOUTS, RESIZES, Reader};
use crate::backend::tensor::{ElementType, Shape, TensorSpec};
use crate::preprocess::{Align, Filter, InputSpec, Layout, Quantization};

/// What `mean` and `std` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Normalisation {
    Required,
    /// Absent, or 0 and 1: bytes go into the model as they are.
    Neutral,
}

impl Reader {
    pub(super) fn input(&mut self, field: &Field<'_>) -> Option<(InputSpec, TensorSpec)> {
        let keys = [
            "name",
            "shape",
            "type",
            "scale",
            "zero_point",
            "layout",
            "color",
            "mean",
            "std",
            "resize",
            "filter",
            "pad",
            "align",
        ];
        let fields = self.map(field, &keys)?;
        let name = fields.required(self, "name").and_then(|f| self.text(&f));
        let layout = fields.required(self, "layout").and_then(|f| self.choice(&f, &LAYOUTS));
        let size = fields.required(self, "shape").and_then(|f| self.input_shape(&f, layout));
        let types = ElementType::ALL.map(|kind| (kind.name(), kind));
        let element_type = fields.required(self, "type").and_then(|f| self.choice(&f, &types));
        let quantization = self.quantization(&fields, element_type);
        let color = fields.required(self, "color").and_then(|f| self.choice(&f, &COLORS));
        let raw = element_type == Some(ElementType::U8) && fields.optional("scale").is_none();
        let normalise = if raw { Normalisation::Neutral } else { Normalisation::Required };
        let mean = self.normalisation(&fields, "mean", 0.0, normalise);
        let std = self.normalisation(&fields, "std", 1.0, normalise);
        let resize = fields.required(self, "resize").and_then(|f| self.choice(&f, &RESIZES));
        let filter = fields.optional("filter").map_or(Some(Filter::Bilinear), |f| self.choice(&f, &FILTERS));
        let pad = fields.optional("pad").map_or(Some(114), |f| {
            let pad = self.integer(&f)?;
            let wrong = || format!("must be a grey value from 0 to 255, not {pad}");
            u8::try_from(pad).ok().or_else(|| self.wrong(&f, wrong()))
        });
        let align = fields.optional("align").map_or(Some(Align::Center), |f| self.choice(&f, &ALIGNS));
        let (shape, (width, height)) = size?;
        let spec = InputSpec {
            width,
            height,
            element_type: element_type?,
            quantization: quantization?,
            layout: layout?,
            color: color?,
            mean: mean?,
            std: std?,
            resize: resize?,
            filter: filter?,
            pad: pad?,
            align: align?,
        };
        let tensor = TensorSpec { name: name?.to_owned(), element_type: spec.element_type, shape };
        Some((spec, tensor))
    }

    /// The shape, and width and height where the layout is known.
    fn input_shape(&mut self, field: &Field<'_>, layout: Option<Layout>) -> Option<(Shape, (u32, u32))> {
        let (shape, dims) = self.shape(field)?;
        let layout = layout?;
        let (order, places) = match layout {
            Layout::Nchw => ("batch, 3, height, width", [1, 2, 3]),
            Layout::Nhwc => ("batch, height, width, 3", [3, 1, 2]),
        };
        let [channels, height, width] = places.map(|place| dims.get(place).copied().unwrap_or(0));
        if dims.len() != 4 || channels != 3 {
            return self.wrong(field, format!("must be [{order}] for this layout, not {shape}"));
        }
        match (u32::try_from(width), u32::try_from(height)) {
            (Ok(width), Ok(height)) => Some((shape, (width, height))),
            _ => self.wrong(
                field,
                format!("must have a height and width in pixels, not {shape}; only the batch may be -1"),
            ),
        }
    }

    /// A shape: a list of sizes, each at least 1 or -1, that can be multiplied.
    pub(super) fn shape(&mut self, field: &Field<'_>) -> Option<(Shape, Vec<i64>)> {
        let items = self.items(field)?;
        let dims: Vec<Option<i64>> = items.iter().map(|item| self.integer(item)).collect();
        let dims: Vec<i64> = dims.into_iter().collect::<Option<_>>()?;
        let shape = Shape::new(&dims);
        if dims.len() > 8 || dims.iter().any(|&dim| dim == 0 || dim < -1) {
            let message = "must be at most 8 sizes of 1 and more, or -1 for one that is known when it runs";
            return self.wrong(field, message);
        }
        if dims.first().is_some_and(|&batch| batch > BATCH_MAX) {
            return self.wrong(field, format!("has a batch of more than {BATCH_MAX}"));
        }
        let mut frame = dims.iter().skip(1).filter_map(|&dim| u64::try_from(dim).ok());
        let elements = frame.try_fold(1_u64, u64::checked_mul);
        if elements.is_none_or(|elements| elements > ELEMENTS_MAX) {
            return self.wrong(
                field,
                format!("{shape} has more than the {ELEMENTS_MAX} numbers that one frame may take"),
            );
        }
        Some((shape, dims))
    }

    /// `scale` and `zero_point`. Without them the bytes of `u8` are colours as they are.
    fn quantization(
        &mut self,
        fields: &Fields<'_>,
        element_type: Option<ElementType>,
    ) -> Option<Quantization> {
        let Some(integers) = element_type?.integers() else {
            for name in ["scale", "zero_point"] {
                if let Some(field) = fields.optional(name) {
                    self.wrong(&field, "has a meaning for inputs of type u8 and i8 only; remove it")?;
                }
            }
            return Some(Quantization::NONE);
        };
        let given = fields.optional("scale").is_some() || fields.optional("zero_point").is_some();
        if element_type == Some(ElementType::U8) && !given {
            return Some(Quantization::NONE);
        }
        let scale = fields.required(self, "scale").and_then(|f| {
            let scale = self.number(&f)?;
            if scale > 0.0 { Some(scale) } else { self.wrong(&f, "must be more than 0") }
        });
        let zero_point = fields.required(self, "zero_point").and_then(|f| {
            let zero_point = self.integer(&f)?;
            let (first, last) = (integers.start(), integers.end());
            let within = i32::try_from(zero_point).ok().filter(|value| integers.contains(value));
            within.or_else(|| {
                self.wrong(&f, format!("must be a number from {first} to {last}, not {zero_point}"))
            })
        });
        Some(Quantization { scale: scale?, zero_point: zero_point? })
    }

    /// `mean` or `std`.
    fn normalisation(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        neutral: f32,
        normalise: Normalisation,
    ) -> Option<[f32; 3]> {
        let field = match fields.optional(name) {
            None if normalise == Normalisation::Neutral => return Some([neutral; 3]),
            Some(field) => field,
            None => fields.required(self, name)?,
        };
        let values = self.channels(&field)?;
        if normalise == Normalisation::Neutral && values != [neutral; 3] {
            let message = format!("must be {neutral} or absent for an input of type u8 without a scale");
            return self.wrong(&field, message);
        }
        if name == "std" && values.iter().any(|&value| value <= 0.0) {
            return self.wrong(&field, "must be more than 0, because pictures are divided by it");
        }
        Some(values)
    }

    /// One number, or one for each colour.
    fn channels(&mut self, field: &Field<'_>) -> Option<[f32; 3]> {
        if field.is_single() {
            return self.number(field).map(|number| [number; 3]);
        }
        let items = self.items(field)?;
        let [a, b, c] = items.as_slice() else {
            return self.wrong(field, format!("must be one number or three, not {}", items.len()));
        };
        let [a, b, c] = [a, b, c].map(|item| self.number(item));
        Some([a?, b?, c?])
    }
}
