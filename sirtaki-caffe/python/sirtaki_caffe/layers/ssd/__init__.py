"""The layers of SSD detectors."""

from sirtaki_caffe.layers.ssd import evaluate, multibox_loss, output, prior_box

__all__ = ["evaluate", "multibox_loss", "output", "prior_box"]
