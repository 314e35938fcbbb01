"""MultiBoxLoss: a detector's predictions for priors, against the boxes of the images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.loss_normalizer import LossNormalizer
from sirtaki_caffe.layers.ssd.boxes import CENTER_SIZE, decode, encode, kept_by_nms, overlaps, sizes
from sirtaki_caffe.layers.ssd.truth import Truth, check_label_shape, check_predictions, truths

_L2 = 0
_LOGISTIC = 1
_PER_PREDICTION = 1


@dataclass
class _Chosen:
    """Priors of the whole batch: of image `image`, prior `prior`."""

    image: torch.Tensor
    prior: torch.Tensor
    label: torch.Tensor
    box: torch.Tensor


@layer("MultiBoxLoss")
class MultiBoxLoss(Layer):
    """Bottoms: locations, scores, priors, boxes of the images; the top is the loss.

    Priors are matched with boxes; the hardest of those without a box learn to be background. Each
    process has its own images; the divisor of the loss is counted over all processes.
    """

    bottoms = (4, 4)
    is_loss = True
    no_gradient_to = (2, 3)
    references = (2, 3)

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters."""
        p = self._param = self.proto.multibox_loss_param
        if any(list(self.proto.propagate_down)[2:]):
            raise self.error("propagate_down must be false for its priors and its labels")
        mining = p.mining_type != NO_MINING
        if p.HasField("do_neg_mining") and p.do_neg_mining != mining:
            raise self.error("do_neg_mining contradicts mining_type; leave it out")
        if not p.share_location and (mining or not p.use_prior_for_matching):
            raise self.error(
                "without share_location, mining_type must be NONE and use_prior_for_matching true"
            )
        if p.map_object_to_agnostic and p.num_classes != 2:
            raise self.error("map_object_to_agnostic needs num_classes 2")
        if p.neg_pos_ratio < 0 or p.sample_size < 0:
            raise self.error("neg_pos_ratio and sample_size must be 0 or more")
        self._normalizer = LossNormalizer(self)
        self.shapes(bottoms)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of a scalar."""
        p = self._param
        check_predictions(self, bottoms, p.num_classes, p.share_location)
        check_label_shape(self, bottoms[3], 3)
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        p = self._param
        images, count = check_predictions(
            self, [tuple(b.shape) for b in bottoms], p.num_classes, p.share_location
        )
        loc = bottoms[0].reshape(images, count, -1, 4)
        conf = bottoms[1].reshape(images, count, -1)
        priors, variances = bottoms[2].detach().reshape(2, count, 4)
        found = truths(
            self,
            bottoms[3].reshape(-1, 8),
            images,
            p.num_classes,
            p.background_label_id,
            p.use_difficult_gt,
        )
        positive, negative = self._choose(loc.detach(), conf.detach(), priors, variances, found)
        divisor = self._normalizer.divisor(images, count, torch.ones(len(positive.image)))
        total = self._total(loc, conf, (priors, variances), positive, negative)
        return [total / divisor]

    def _total(
        self,
        loc: torch.Tensor,
        conf: torch.Tensor,
        priors: tuple[torch.Tensor, torch.Tensor],
        positive: _Chosen,
        negative: _Chosen,
    ) -> torch.Tensor:
        p = self._param
        asked = list(self.proto.propagate_down[:2]) or [True, True]
        total = conf.new_zeros(())
        if asked[0]:
            losses = self._loc_losses(loc, priors[0], priors[1], positive)
            total = total + p.loc_weight * losses.sum()
        if asked[1]:
            images = torch.cat([positive.image, negative.image])
            labels = torch.cat([positive.label, negative.label])
            scores = conf[images, torch.cat([positive.prior, negative.prior])]
            total = total + self._conf_losses(scores, labels).sum()
        return total

    def _choose(
        self,
        loc: torch.Tensor,
        conf: torch.Tensor,
        priors: torch.Tensor,
        variances: torch.Tensor,
        found: Sequence[Truth],
    ) -> tuple[_Chosen, _Chosen]:
        """Return the priors of the batch that count, with and without a box."""
        p = self._param
        threshold = p.overlap_threshold if p.match_type == _PER_PREDICTION else None
        matched = []
        for image, truth in enumerate(found):
            self._check_boxes(image, truth)
            tried = priors
            if not p.use_prior_for_matching:
                tried = self._decoded(loc[image, :, 0], priors, variances)
            matched.append(match(tried.cpu(), truth.boxes, threshold, p.ignore_cross_boundary_bbox))
        none_anywhere = False
        if p.mining_type == HARD_EXAMPLE:
            own = torch.tensor(float(sum((m >= 0).sum() for m, _ in matched)))
            none_anywhere = not float(self.per_process(own, varies=True, least=0.0))
        parts: tuple[list[_Chosen], list[_Chosen]] = ([], [])
        for image, (truth, (matches, most)) in enumerate(zip(found, matched, strict=True)):
            if none_anywhere:
                chosen = (np.zeros(0, np.int64), np.zeros(0, np.int64))
            elif p.mining_type == NO_MINING:
                chosen = (np.flatnonzero(matches >= 0), np.flatnonzero(matches == NONE))
            else:
                losses, boxes = self._mining(image, loc, conf, (priors, variances), truth, matches)
                chosen = mine(p, matches, most, losses, boxes)
            for part, places in zip(parts, chosen, strict=True):
                part.append(self._of_image(image, places, matches, truth, conf))
        positive, negative = (_joined(part) for part in parts)
        return positive, negative

    def _mining(
        self,
        image: int,
        loc: torch.Tensor,
        conf: torch.Tensor,
        priors: tuple[torch.Tensor, torch.Tensor],
        truth: Truth,
        matches: np.ndarray,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the losses of all priors of an image, and their boxes."""
        p = self._param
        everything = self._of_image(image, np.arange(len(matches)), matches, truth, conf)
        losses = self._conf_losses(conf[image], everything.label)
        if p.mining_type == HARD_EXAMPLE:
            places = np.flatnonzero(matches >= 0)
            positive = self._of_image(image, places, matches, truth, conf)
            of_boxes = self._loc_losses(loc, priors[0], priors[1], positive).sum(1)
            losses = losses.index_add(0, positive.prior, of_boxes)
        boxes = priors[0]
        if not p.use_prior_for_nms and p.HasField("nms_param"):
            boxes = self._decoded(loc[image, :, 0], *priors)
        return losses.cpu(), boxes.cpu()

    def _of_image(
        self, image: int, places: np.ndarray, matches: np.ndarray, truth: Truth, like: torch.Tensor
    ) -> _Chosen:
        """Return some priors of an image with their targets."""
        p = self._param
        boxes = torch.from_numpy(np.maximum(matches[places], 0))
        has_box = torch.from_numpy(matches[places] >= 0)
        background = torch.full((len(places),), int(p.background_label_id))
        box = torch.zeros(len(places), 4, dtype=like.dtype)
        label = background
        if len(truth.boxes):
            box = truth.boxes[boxes].to(like.dtype)
            own = truth.labels[boxes]
            label = (background + 1 if p.map_object_to_agnostic else own).where(has_box, background)
        image_of = torch.full((len(places),), image)
        chosen = _Chosen(image_of, torch.from_numpy(places), label, box)
        return _Chosen(*(part.to(like.device) for part in vars(chosen).values()))

    def _check_boxes(self, image: int, truth: Truth) -> None:
        sides = truth.boxes[:, 2:] - truth.boxes[:, :2]
        if self._param.code_type == CENTER_SIZE and (sides <= 0).any():
            at = int((sides <= 0).any(1).nonzero()[0])
            raise self.error(
                f"box {at} of image {image} of the batch, {truth.boxes[at].tolist()}, has no area; "
                "mend the annotation and make the database again"
            )

    def _decoded(
        self, said: torch.Tensor, priors: torch.Tensor, variances: torch.Tensor
    ) -> torch.Tensor:
        p = self._param
        scaled = said if p.encode_variance_in_target else said * variances
        return decode(p.code_type, priors, scaled)

    def _loc_losses(
        self, loc: torch.Tensor, priors: torch.Tensor, variances: torch.Tensor, at: _Chosen
    ) -> torch.Tensor:
        """Return the losses of each coordinate of some priors, which have a box."""
        p = self._param
        prior, variance = priors[at.prior], variances[at.prior]
        said = loc[at.image, at.prior, at.label if not p.share_location else 0]
        wanted = encode(p.code_type, prior, at.box) / variance
        if p.encode_variance_in_target:
            # The value is divided by the variance, but its gradient is not, as in Caffe.
            said = said + (said / variance - said).detach()
        d = said - wanted
        size = d.abs()
        losses = d * d / 2
        if p.loc_loss_type != _L2:
            losses = losses.where(size < 1, size - 0.5)
        if p.bp_inside:
            box = prior
            if not p.use_prior_for_matching:
                box = self._decoded(loc[at.image, at.prior, 0].detach(), prior, variance)
            losses = losses * ((box >= 0) & (box <= 1)).to(losses.dtype)
        return losses

    def _conf_losses(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the losses of some priors."""
        if self._param.conf_loss_type != _LOGISTIC:
            return F.cross_entropy(scores, labels, reduction="none")
        wanted = F.one_hot(labels, scores.shape[1]).to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores, wanted, reduction="none").sum(1)


def _joined(parts: Sequence[_Chosen]) -> _Chosen:
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return _Chosen(*(torch.cat(column) for column in columns))


NO_MINING, MAX_NEGATIVE, HARD_EXAMPLE = 0, 1, 2
_LEAST_SIZE = 1e-5


def mine(
    param: Any, matches: np.ndarray, most: np.ndarray, losses: torch.Tensor, boxes: torch.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Return the priors of one image that count: with a box, and without.

    Args:
        param: A MultiBoxLossParameter.
        matches: The box of each prior.
        most: The overlap of each with its nearest box.
        losses: The loss of each prior.
        boxes: The boxes for removing near candidates, with `nms_param`.

    Returns:
        The numbers of the positive priors, and of the negative ones.
    """
    positive = np.flatnonzero(matches >= 0)
    if param.mining_type == MAX_NEGATIVE:
        candidates = np.flatnonzero((matches == NONE) & (most < param.neg_overlap))
        count = min(int(len(positive) * param.neg_pos_ratio), len(candidates))
    else:
        candidates = np.flatnonzero(matches >= NONE)
        count = min(int(param.sample_size), len(candidates))
    if param.HasField("nms_param") and param.nms_param.nms_threshold > 0:
        candidates = _spread(param.nms_param, candidates, losses, boxes)
    hardest = losses[torch.from_numpy(candidates)].argsort(descending=True, stable=True)
    chosen = np.sort(candidates[hardest[:count].numpy()])
    if param.mining_type == MAX_NEGATIVE:
        return positive, chosen
    return chosen[matches[chosen] >= 0], chosen[matches[chosen] == NONE]


def _spread(
    nms: Any, candidates: np.ndarray, losses: torch.Tensor, boxes: torch.Tensor
) -> np.ndarray:
    places = torch.from_numpy(candidates)
    places = places[sizes(boxes[places]) >= _LEAST_SIZE]
    top_k = nms.top_k if nms.HasField("top_k") else -1
    kept = kept_by_nms(boxes[places], losses[places], nms.nms_threshold, top_k, nms.eta)
    found: np.ndarray = places[kept].numpy()
    return found


NONE, IGNORED = -1, -2
_LEAST = 1e-6


def match(
    priors: torch.Tensor, boxes: torch.Tensor, threshold: float | None, inside_only: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the matched box of each prior, and its overlap with the nearest box.

    Each box gets the prior that overlaps it most, the best pair first; of equal ones the lower
    prior, then the lower box.

    Args:
        priors: Array of shape (priors, 4).
        boxes: The boxes of one image.
        threshold: The minimum overlap for other priors to match their nearest box; None: never.
        inside_only: Whether to ignore priors that are partly outside of the image.

    Returns:
        For each prior the index of a box, NONE or IGNORED; and the overlap.
    """
    found = np.full(len(priors), NONE)
    if inside_only:
        found[((priors < 0) | (priors > 1)).any(1).numpy()] = IGNORED
    if not len(boxes):
        return found, np.zeros(len(priors))
    pairs = overlaps(priors, boxes).double().numpy()
    pairs[pairs <= _LEAST] = 0
    pairs[found == IGNORED] = 0
    nearest, most = pairs.argmax(1), pairs.max(1)
    left = pairs.copy()
    for _ in range(len(boxes)):
        prior, box = divmod(int(left.argmax()), len(boxes))
        if left[prior, box] == 0:
            break
        found[prior] = box
        left[prior], left[:, box] = 0, 0
    if threshold is not None:
        near = (found == NONE) & (most >= threshold) & (most > 0)
        found[near] = nearest[near]
    return found, most
