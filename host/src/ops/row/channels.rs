//! Group norm and batch norm: norms of channels, over all positions, with their gradients.
//!
//! Three launches each: sums of parts, numbers of groups, and the elements. The tensor is read twice.

use half::{bf16, f16};
use primitives::access::VECTOR_BYTES;
use rows::channels::finish::{
    Gradients, GradientsArgs, RunningArgs, WARPS, channel_gradients_bf16, channel_gradients_f16,
    channel_gradients_f32, channel_moments,
};
use rows::channels::map::{channel_map_bf16, channel_map_f16, channel_map_f32};
use rows::channels::sums::{channel_sums_bf16, channel_sums_f16, channel_sums_f32};
use rows::channels::{Channels as Plan, Sides, THREADS, Way};

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};

use super::launch::{lies_last, written};
use super::norm::{check_eps, shared_by_rows};
use super::{NormGradients, alike, argument};
use crate::error::Result;
use crate::launch::{Arg, LaunchConfig, launch};
use crate::memory::{DeviceBuffer, Within};
use crate::ops::dispatch::by_dtype;
use crate::ops::elementwise::{contiguous, made};
use crate::stream::Stream;
use crate::tensor::{DType, Element, Shape, Tensor, TensorError, TensorMut};

/// Which axis of a tensor its channels are. The first axis are the images; all others are positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelAxis {
    /// The second one, as PyTorch has it: `[images, channels, ..]`. A view of a tensor whose channels come
    /// last in memory is taken as it lies, and its result lies likewise.
    #[default]
    Second,
    /// The last one, as convolutions of `ops::conv` have it: `[images, .., channels]`.
    Last,
}

/// Shared by all norms of channels: where those are, their weight and bias, and the epsilon.
#[derive(Clone, Copy, Debug)]
pub struct ChannelAffine<'a> {
    /// Where the channels are.
    pub axis: ChannelAxis,
    /// A factor a channel, of one dimension and the tensor's type.
    pub weight: Option<&'a Tensor>,
    /// A term a channel, after the factor, of the same shape and type.
    pub bias: Option<&'a Tensor>,
    /// Added to the variance before the root. Not negative.
    pub eps: f64,
}

impl Default for ChannelAffine<'_> {
    /// No weight, no bias, and PyTorch's epsilon, 1e-5.
    fn default() -> Self {
        ChannelAffine { axis: ChannelAxis::default(), weight: None, bias: None, eps: 1e-5 }
    }
}

/// Group norm (Wu and He 2018), PyTorch's `torch.nn.functional.group_norm`: each image's channels in groups
/// of neighbours, `(x - mean) / sqrt(variance + eps)` over a group and all its positions. A group a channel
/// is instance norm, one group layer norm over all but the first axis.
///
/// f32, f16 and bf16, computed in f32; results repeat bit for bit.
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm<'a> {
    /// Groups of an image: a divisor of the channels.
    pub groups: usize,
    /// Weight, bias and epsilon.
    pub affine: ChannelAffine<'a>,
}

/// Batch norm (Ioffe and Szegedy 2015), PyTorch's `torch.nn.functional.batch_norm`: `(x - mean) /
/// sqrt(variance + eps)` of each channel, over all images and positions.
///
/// f32, f16 and bf16, computed in f32; results repeat bit for bit.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchNorm<'a> {
    /// Weight, bias and epsilon.
    pub affine: ChannelAffine<'a>,
}

/// The results of a norm of channels.
#[derive(Debug)]
pub struct ChannelNormed {
    /// The result, of the shape and type of `x`.
    pub y: Tensor,
    /// For the gradient: the mean of each group, then the inverse of each group's deviation, f32.
    pub moments: Tensor,
}

/// Running statistics of a batch norm: f32, one for each channel, on the device.
#[derive(Debug)]
pub struct RunningStatistics<'a> {
    /// Becomes `(1 - momentum) mean + momentum mean of the batch`.
    pub mean: TensorMut<'a>,
    /// The same of the variance, the batch's with a correction of 1.
    pub variance: TensorMut<'a>,
    /// The share of the batch, from 0 to 1. PyTorch's default is 0.1.
    pub momentum: f64,
}

/// Means and variances that do not come from the batch: the running statistics, for inference.
#[derive(Clone, Copy, Debug)]
pub struct FixedStatistics<'a> {
    /// One for each channel, f32.
    pub mean: &'a Tensor,
    /// The same.
    pub variance: &'a Tensor,
}

impl GroupNorm<'_> {
    const OPERATION: &'static str = "group_norm";

    /// The norm of `x`.
    ///
    /// # Errors
    /// [`TensorError::Axis`] for less than two axes, [`TensorError::DType`] for other types than f32, f16 and
    /// bf16, and for a weight or bias of another type, [`TensorError::Shape`] for one that has not a number
    /// for each channel, [`crate::Error::InvalidArgument`] for a number of groups that does not divide the
    /// channels and for an epsilon that is negative or NaN, [`TensorError::TooLarge`] beyond 2^30 positions
    /// or parts of channels, [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's
    /// error.
    #[track_caller]
    pub fn run(&self, stream: &Stream, x: &Tensor) -> Result<ChannelNormed> {
        let pass = self.pass(Self::OPERATION, stream, x)?;
        pass.normed(None)
    }

    /// The gradients, from that by the result and the moments that [`run`](Self::run) left; `of_shared` says
    /// whether those by weight and bias are wanted.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`TensorError::Shape`] or [`TensorError::DType`] for a gradient or moments
    /// that do not fit `x`.
    #[track_caller]
    pub fn backward(
        &self,
        stream: &Stream,
        x: &Tensor,
        dy: &Tensor,
        moments: &Tensor,
        of_shared: [bool; 2],
    ) -> Result<NormGradients> {
        let pass = self.pass("group_norm_backward", stream, x)?;
        let of = pass.moments(moments)?;
        pass.gradients(dy, &of, of_shared)
    }

    fn pass<'a>(&'a self, operation: &'static str, stream: &'a Stream, x: &'a Tensor) -> Result<Pass<'a>> {
        let channels = self.affine.channels(operation, x)?;
        if self.groups == 0 || !channels.is_multiple_of(self.groups) {
            let (got, wanted) = (self.groups.to_string(), format!("a divisor of the {channels} channels"));
            let hint = "1 takes all channels together, and as many as channels each for itself";
            return Err(argument(operation, "groups", got, wanted, hint));
        }
        Pass::new(operation, stream, x, &self.affine, Some(channels / self.groups))
    }
}

impl BatchNorm<'_> {
    const OPERATION: &'static str = "batch_norm";

    /// The norm of `x` by its own statistics, which also go into the running ones.
    ///
    /// # Errors
    /// As [`GroupNorm::run`]; running statistics are as before when memory runs out. And
    /// [`crate::Error::InvalidArgument`] for one element a channel and a momentum that is not from 0 to 1,
    /// [`TensorError`]s for running statistics that are not one f32 a channel, one behind the other.
    #[track_caller]
    pub fn train(
        &self,
        stream: &Stream,
        x: &Tensor,
        running: Option<RunningStatistics<'_>>,
    ) -> Result<ChannelNormed> {
        let operation = Self::OPERATION;
        let pass = Pass::new(operation, stream, x, &self.affine, None)?;
        if pass.of_group() == 1 {
            let (got, wanted) = (format!("{}", x.shape()), "several elements a channel".to_owned());
            let hint = "one has no deviation: take more images, or `infer`";
            return Err(argument(operation, "x", got, wanted, hint));
        }
        pass.normed(running)
    }

    /// The norm of `x` by given statistics.
    ///
    /// # Errors
    /// As [`GroupNorm::run`], and [`TensorError`]s for statistics that are not one f32 for each channel.
    #[track_caller]
    pub fn infer(&self, stream: &Stream, x: &Tensor, by: FixedStatistics<'_>) -> Result<Tensor> {
        let pass = Pass::new(Self::OPERATION, stream, x, &self.affine, None)?;
        let of = pass.fixed(by)?;
        pass.map(pass.blank()?, None, &of, None)
    }

    /// The gradients of [`train`](Self::train), as [`GroupNorm::backward`].
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn backward(
        &self,
        stream: &Stream,
        x: &Tensor,
        dy: &Tensor,
        moments: &Tensor,
        of_shared: [bool; 2],
    ) -> Result<NormGradients> {
        let pass = Pass::new("batch_norm_backward", stream, x, &self.affine, None)?;
        let of = pass.moments(moments)?;
        pass.gradients(dy, &of, of_shared)
    }

    /// The gradients of [`infer`](Self::infer): the statistics do not depend on `x`.
    ///
    /// # Errors
    /// As [`GroupNorm::backward`].
    #[track_caller]
    pub fn infer_backward(
        &self,
        stream: &Stream,
        x: &Tensor,
        dy: &Tensor,
        by: FixedStatistics<'_>,
        of_shared: [bool; 2],
    ) -> Result<NormGradients> {
        let pass = Pass::new("batch_norm_backward", stream, x, &self.affine, None)?;
        let of = pass.fixed(by)?;
        pass.gradients(dy, &of, of_shared)
    }
}

impl ChannelAffine<'_> {
    fn channels(&self, operation: &'static str, x: &Tensor) -> Result<usize> {
        let rank = x.rank();
        if rank < 2 {
            return Err(TensorError::Axis { operation, axis: 1, rank }.into());
        }
        Ok(x.shape()[if self.axis == ChannelAxis::Last { rank - 1 } else { 1 }])
    }
}

/// Numbers of groups that the elements are normalised by.
struct Statistics<'t> {
    means: Within<'t, f32>,
    /// Inverses of deviations, or variances.
    scales: Within<'t, f32>,
    of_variances: bool,
}

/// The parameters of the kernels.
type SumsParameters<T> = (Value<Plan>, Ptr<T>, Ptr<T>, Ptr<f32>, PtrMut<f32>);
type GradientsParameters<T> = (Value<Plan>, Value<Gradients>, Ptr<f32>, Ptr<T>, PtrMut<T>, PtrMut<T>);
type MapParameters<T> = (Value<Plan>, Value<Gradients>, Ptr<T>, Ptr<T>, Ptr<T>, Ptr<T>, PtrMut<T>);

/// Calls a function with the element type and its kernel.
macro_rules! by_type {
    ($pass:expr, $f:ident($($argument:expr),*), $f32:ty, $f16:ty, $bf16:ty) => {
        by_dtype!($pass.x.dtype(), ($pass.operation, "x", None), {
            F32 => $pass.$f::<$f32, f32>($($argument),*),
            F16 => $pass.$f::<$f16, f16>($($argument),*),
            BF16 => $pass.$f::<$bf16, bf16>($($argument),*),
        })
    };
}

/// Checked operands.
struct Pass<'a> {
    operation: &'static str,
    stream: &'a Stream,
    /// As it lies: contiguous.
    x: Tensor,
    /// The axes of the caller's tensor by those of `x`, where they are others.
    turned: Option<Vec<usize>>,
    sides: Sides,
    group: usize,
    is_joined: bool,
    is_last: bool,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    eps: f64,
}

impl<'a> Pass<'a> {
    /// `group` channels together, or all images.
    #[track_caller]
    fn new(
        operation: &'static str,
        stream: &'a Stream,
        x: &'a Tensor,
        affine: &ChannelAffine<'a>,
        group: Option<usize>,
    ) -> Result<Self> {
        let channels = affine.channels(operation, x)?;
        check_eps(operation, affine.eps)?;
        let weight = shared_by_rows(stream, operation, "weight", affine.weight, x, channels)?;
        let bias = shared_by_rows(stream, operation, "bias", affine.bias, x, channels)?;
        let images = x.shape()[0];
        let positions = x.elements() / (images * channels).max(1);
        let [images, of_image, positions] = [images, channels, positions].map(|side| side as u64);
        let sides = Sides { images, channels: of_image, positions };
        let turned = (affine.axis == ChannelAxis::Second).then(|| lies_last(x)).transpose()?.flatten();
        let is_last = affine.axis == ChannelAxis::Last || turned.is_some();
        let x = match &turned {
            Some(axes) => x.permute(axes)?,
            None => contiguous(stream, x)?,
        };
        let (is_joined, group, eps) = (group.is_none(), group.unwrap_or(1), affine.eps);
        Ok(Pass { operation, stream, x, turned, sides, group, is_joined, is_last, weight, bias, eps })
    }

    /// Elements of a group.
    fn of_group(&self) -> u64 {
        let joined = if self.is_joined { self.sides.images } else { 1 };
        joined * self.group as u64 * self.sides.positions
    }

    fn groups(&self) -> usize {
        let Sides { images, channels, .. } = self.sides;
        let of_image = channels as usize / self.group.max(1);
        if self.is_joined { of_image } else { images as usize * of_image }
    }

    /// The plan, for tensors that begin at these addresses; none without an element.
    fn plan(&self, addresses: &[u64]) -> Result<Option<Plan>> {
        if self.x.is_empty() {
            return Ok(None);
        }
        let is_aligned = addresses.iter().all(|at| at.is_multiple_of(VECTOR_BYTES as u64));
        let Pass { group, is_joined, is_last, .. } = *self;
        let size = self.x.dtype().size();
        let way = Way { size, group: group as u64, is_joined, is_last, is_aligned };
        let too_large = TensorError::TooLarge { operation: self.operation, shape: self.x.shape().to_vec() };
        Ok(Some(Plan::new(&self.sides, &way).ok_or(too_large)?))
    }

    /// A result by the caller's axes.
    fn given(&self, y: Tensor) -> Result<Tensor> {
        let Some(axes) = &self.turned else { return Ok(y) };
        let mut back = axes.clone();
        for (at, &axis) in axes.iter().enumerate() {
            back[axis] = at;
        }
        y.permute(&back)
    }

    /// Statistics of a forward pass.
    fn moments<'t>(&self, moments: &'t Tensor) -> Result<Statistics<'t>> {
        let groups = self.groups();
        self.check_statistics("moments", moments, &[2, groups], "pass what the forward pass gave")?;
        let means = moments.as_view::<f32>()?.within();
        let scales = moments.as_view::<f32>()?.slice(groups..)?.within();
        self.stream.same_device("the moments", moments.device())?;
        Ok(Statistics { means, scales, of_variances: false })
    }

    fn fixed<'t>(&self, by: FixedStatistics<'t>) -> Result<Statistics<'t>> {
        let channels = [self.groups()];
        for (what, given) in [("mean", by.mean), ("variance", by.variance)] {
            self.check_statistics(what, given, &channels, "pass a running statistic")?;
            given.as_view::<f32>()?;
        }
        let (means, scales) = (by.mean.read(self.stream)?, by.variance.read(self.stream)?);
        Ok(Statistics { means, scales, of_variances: true })
    }

    fn check_statistics(
        &self,
        what: &'static str,
        given: &Tensor,
        sides: &[usize],
        hint: &'static str,
    ) -> Result<()> {
        self.check_numbers(what, given.shape(), given.dtype(), sides, hint)
    }

    /// f32 of this shape.
    fn check_numbers(
        &self,
        what: &'static str,
        shape: &Shape,
        got: DType,
        sides: &[usize],
        hint: &'static str,
    ) -> Result<()> {
        let operation = self.operation;
        if shape.sides() != sides {
            let (got, wanted) = (shape.clone(), format!("{sides:?}"));
            return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
        }
        if got != DType::F32 {
            return Err(TensorError::DType { operation, what, got, wanted: "f32".to_owned(), hint }.into());
        }
        Ok(())
    }

    /// Statistics of `x` itself, and its norm by them.
    fn normed(&self, running: Option<RunningStatistics<'_>>) -> Result<ChannelNormed> {
        let (shape, hint) = (Shape::new(&[2, self.groups()])?, "one f32 for each channel");
        let momentum = running.as_ref().map_or(0.0, |running| running.momentum);
        if !(0.0..=1.0).contains(&momentum) {
            let (got, wanted) = (momentum.to_string(), "from 0 to 1".to_owned());
            return Err(argument(self.operation, "momentum", got, wanted, "PyTorch's default is 0.1"));
        }
        let running = running.map(|running| [running.mean, running.variance]);
        for (what, given) in ["mean", "variance"].into_iter().zip(running.iter().flatten()) {
            self.check_numbers(what, given.shape(), given.dtype(), &[self.groups()], hint)?;
            if !given.layout().is_contiguous() {
                let (operation, shape) = (self.operation, given.shape().clone());
                let strides = given.layout().strides().to_vec();
                return Err(TensorError::NotContiguous { operation, shape, strides }.into());
            }
        }
        let Some(plan) = self.plan(&[self.x.address()])? else {
            let moments = Tensor::zeros(self.stream, shape.sides(), DType::F32)?;
            return Ok(ChannelNormed { y: self.given(self.x.clone())?, moments });
        };
        let partials =
            by_type!(self, sums(&plan, None, None), channel_sums_f32, channel_sums_f16, channel_sums_bf16)?;
        // Before anything goes into the running statistics.
        let y = self.blank()?;
        let moments = made(self.stream, &shape, DType::F32, |moments| {
            let [mean, variance] = match &running {
                Some([mean, variance]) => {
                    [Some(mean.write::<f32>(self.stream)?), Some(variance.write::<f32>(self.stream)?)]
                }
                None => [None, None],
            };
            let count = self.of_group() as f64;
            let (share, corrected) = (1.0 / count, 1.0 / (count - 1.0));
            let running = RunningArgs { mean, variance, momentum, share, corrected, eps: self.eps };
            let arguments = (plan, running.pass(), &partials, moments.write::<f32>(self.stream)?);
            // SAFETY: the parts of this plan; two numbers for each group, a running one for each channel.
            unsafe { launch::<channel_moments>(self.stream, warps(self.groups()), arguments) }
        })?;
        let y = self.map(y, None, &self.moments(&moments)?, None)?;
        Ok(ChannelNormed { y, moments })
    }

    fn gradients(&self, dy: &Tensor, of: &Statistics<'_>, of_shared: [bool; 2]) -> Result<NormGradients> {
        alike(self.operation, "dy", dy, &self.given(self.x.clone())?)?;
        let turned = self.turned.as_ref().map(|axes| dy.permute(axes)).transpose()?;
        let dy = turned.as_ref().unwrap_or(dy);
        let dy = contiguous(self.stream, dy)?;
        let channels = self.sides.channels as usize;
        let zeros = || Tensor::zeros(self.stream, &[channels], self.x.dtype());
        let Some(plan) = self.plan(&[self.x.address(), dy.address()])? else {
            let [weight, bias] = of_shared.map(|is_wanted| is_wanted.then(zeros).transpose());
            return Ok(NormGradients { x: self.given(self.x.clone())?, weight: weight?, bias: bias? });
        };
        // SAFETY: the launch below writes all of both, or fails, and then they go.
        let new = || unsafe { Tensor::uninit(self.stream, Shape::new(&[channels])?, self.x.dtype()) };
        let [weight, bias] = of_shared.map(|is_wanted| is_wanted.then(new).transpose());
        let (mut weight, mut bias) = (weight?, bias?);
        let mut of_groups = None;
        if !of.of_variances || of_shared.contains(&true) {
            let partials = by_type!(
                self,
                sums(&plan, Some(&dy), Some(of.means)),
                channel_sums_f32,
                channel_sums_f16,
                channel_sums_bf16
            )?;
            if !of.of_variances {
                // SAFETY: a launch writes all of them before the next one reads them.
                of_groups = Some(unsafe { DeviceBuffer::<f32>::uninit(self.stream, 2 * self.groups())? });
            }
            let [to_weight, to_bias] =
                [&mut weight, &mut bias].map(|out| out.as_mut().map(Tensor::view_mut).transpose());
            let outputs = [to_weight?, to_bias?];
            by_type!(
                self,
                finish(&plan, of, &partials, of_groups.as_ref(), &outputs),
                channel_gradients_f32,
                channel_gradients_f16,
                channel_gradients_bf16
            )?;
        }
        Ok(NormGradients { x: self.map(self.blank()?, Some(&dy), of, of_groups.as_ref())?, weight, bias })
    }

    /// The numbers of parts.
    fn sums<K, T>(
        &self,
        plan: &Plan,
        dy: Option<&Tensor>,
        means: Option<Within<'_, f32>>,
    ) -> Result<DeviceBuffer<f32>>
    where
        T: Element,
        K: Kernel<Params = SumsParameters<T>>,
    {
        // SAFETY: the launch writes all of them before the next one reads them.
        let partials = unsafe { DeviceBuffer::<f32>::uninit(self.stream, 2 * plan.partials())? };
        let (x, dy) = (self.x.read::<T>(self.stream)?, dy.map(|dy| dy.read::<T>(self.stream)).transpose()?);
        let arguments = (*plan, x, dy, means, partials.view().within());
        // SAFETY: the tensors have the plan's elements, and there is a mean for each group with a gradient.
        unsafe { launch::<K>(self.stream, blocks(plan), arguments)? };
        Ok(partials)
    }

    fn finish<K, T>(
        &self,
        plan: &Plan,
        of: &Statistics<'_>,
        partials: &DeviceBuffer<f32>,
        of_groups: Option<&DeviceBuffer<f32>>,
        [weight, bias]: &[Option<TensorMut<'_>>; 2],
    ) -> Result<()>
    where
        T: Element,
        K: Kernel<Params = GradientsParameters<T>>,
    {
        let stream = self.stream;
        let given = self.weight.as_ref().map(|weight| weight.read::<T>(stream)).transpose()?;
        let of = self.of(of, of_groups);
        let (weight, bias) = (written::<T>(stream, weight)?, written::<T>(stream, bias)?);
        let config = warps(self.groups() + self.sides.channels as usize);
        // SAFETY: the parts of this plan, two places for each group, one for each channel of the gradients.
        unsafe { launch::<K>(stream, config, (*plan, of, partials, given, weight, bias)) }
    }

    fn of<'t>(
        &self,
        of: &Statistics<'t>,
        of_groups: Option<&'t DeviceBuffer<f32>>,
    ) -> impl Arg<Value<Gradients>> + 't {
        let of = GradientsArgs {
            means: of.means,
            scales: of.scales,
            of_groups: of_groups.map(|of| of.view().within()),
            eps: self.eps as f32,
            of_variances: of.of_variances.into(),
            share: 1.0 / self.of_group() as f64,
        };
        of.pass()
    }

    /// Memory for a result.
    fn blank(&self) -> Result<Tensor> {
        // SAFETY: `map` has all of it written, or fails, and then it goes.
        unsafe { Tensor::uninit(self.stream, self.x.shape().clone(), self.x.dtype()) }
    }

    /// The elements by their groups' numbers, in a [`blank`](Self::blank) result, by the caller's axes.
    fn map(
        &self,
        mut result: Tensor,
        dy: Option<&Tensor>,
        of: &Statistics<'_>,
        of_groups: Option<&DeviceBuffer<f32>>,
    ) -> Result<Tensor> {
        let y = result.view_mut()?;
        let dy_at = dy.map_or(0, Tensor::address);
        if let Some(plan) = self.plan(&[self.x.address(), dy_at, y.address()])? {
            by_type!(
                self,
                map_of(&plan, dy, of, of_groups, &y),
                channel_map_f32,
                channel_map_f16,
                channel_map_bf16
            )?;
        }
        self.given(result)
    }

    fn map_of<K, T>(
        &self,
        plan: &Plan,
        dy: Option<&Tensor>,
        of: &Statistics<'_>,
        of_groups: Option<&DeviceBuffer<f32>>,
        y: &TensorMut<'_>,
    ) -> Result<()>
    where
        T: Element,
        K: Kernel<Params = MapParameters<T>>,
    {
        let stream = self.stream;
        let of = self.of(of, of_groups);
        let (x, dy) = (self.x.read::<T>(stream)?, dy.map(|dy| dy.read::<T>(stream)).transpose()?);
        let [weight, bias] = [&self.weight, &self.bias]
            .map(|shared| shared.as_ref().map(|of| of.read::<T>(stream)).transpose());
        let arguments = (*plan, of, x, dy, weight?, bias?, y.write::<T>(stream)?);
        // SAFETY: x, dy and y have the plan's elements; there are numbers for each group and each channel.
        unsafe { launch::<K>(stream, blocks(plan), arguments) }
    }
}

fn blocks(plan: &Plan) -> LaunchConfig {
    LaunchConfig::new([plan.blocks, 1, 1], [THREADS, 1, 1]).overlapping_previous()
}

/// A warp for each of so many.
fn warps(count: usize) -> LaunchConfig {
    // At most twice the parts of channels.
    LaunchConfig::new([(count as u32).div_ceil(WARPS), 1, 1], [THREADS, 1, 1]).overlapping_previous()
}
