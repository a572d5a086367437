"""Samples on a device: batches gathered, augmented and normalised there, all samples at once.

Tensor names end in their shape: b samples of a batch, c channels, h rows, w columns.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from gcpsl.data.dataset import Samples
from gcpsl.data.federation import pixel_scale

MASK_31 = (1 << 31) - 1


class DeviceSamples:
    """Images as they are stored (uint8 stays uint8) and labels; `batch` makes them float32.

    What becomes of a sample depends on its pixels and its own random bits, never on what else is in the batch.
    """

    def __init__(
        self,
        samples: Samples,
        mean: NDArray[np.float64],
        std: NDArray[np.float64],
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        crop_padding: int = 0,
        flip: bool = False,
    ) -> None:
        self.labels = torch.from_numpy(samples.labels).to(device)
        self.crop_padding = crop_padding
        self.flip = flip
        self._channels_last = channels_last
        self._images = self._laid_out(torch.from_numpy(samples.images)).to(device)
        # (scale x - mean) / std as one product and one sum; as large as an image, which runs faster than per channel
        self._factor_chw = self._per_pixel(pixel_scale(samples.images) / std).to(device)
        self._offset_chw = self._per_pixel(-mean / std).to(device)

    @property
    def images_nhwc(self) -> Tensor:
        """All images as they are stored, where they are stored channels-last."""
        assert self._channels_last
        return self._images

    @property
    def scaling_c(self) -> tuple[Tensor, Tensor]:
        """What normalisation multiplies a channel by, and then adds."""
        return self._factor_chw[:, 0, 0].contiguous(), self._offset_chw[:, 0, 0].contiguous()

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices_b: Tensor, bits_b: Tensor | None = None) -> Tensor:
        """The normalised images at `indices_b`; augmented by each one's 64 random bits (as int64) if there are any."""
        images = self._images.index_select(0, indices_b)
        if self._channels_last:
            images = images.permute(0, 3, 1, 2)
        if bits_b is not None and (self.crop_padding or self.flip):
            images = self._augmented(images, bits_b)
        # two operations, because a fused one rounds differently at the end of a buffer than in its middle
        return images.mul(self._factor_chw).add_(self._offset_chw)

    def _augmented(self, images_bchw: Tensor, bits_b: Tensor) -> Tensor:
        """Crops at an offset from bits 0-30 down and bits 31-61 across, then flips by bit 63."""
        p = self.crop_padding
        if p:
            _, _, height, width = images_bchw.shape
            down_b, across_b = (bits_b & MASK_31) % (2 * p + 1), ((bits_b >> 31) & MASK_31) % (2 * p + 1)
            every_crop = pad(images_bchw, (p, p, p, p)).unfold(2, height, 1).unfold(3, width, 1)
            images_bchw = every_crop[torch.arange(len(bits_b), device=bits_b.device), :, down_b, across_b]
        if self.flip:
            images_bchw = torch.where((bits_b < 0)[:, None, None, None], images_bchw.flip(3), images_bchw)
        return images_bchw

    def _laid_out(self, images_nchw: Tensor) -> Tensor:
        """Images whose rows of memory are whole samples in the order that batches have."""
        return images_nchw.permute(0, 2, 3, 1).contiguous() if self._channels_last else images_nchw.contiguous()

    def _per_pixel(self, values_c: NDArray[np.float64]) -> Tensor:
        shape = self._images.shape[1:]
        values = torch.from_numpy(values_c).to(torch.float32)
        if self._channels_last:
            return values.expand(shape).contiguous().permute(2, 0, 1)
        return values[:, None, None].expand(shape).contiguous()
