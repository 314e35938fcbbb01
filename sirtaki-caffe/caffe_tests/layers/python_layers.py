"""Layers of type Python that the tests' nets name."""

from __future__ import annotations

import json

import numpy as np

import caffe


class Euclidean(caffe.Layer):
    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise ValueError("two bottoms are needed")

    def reshape(self, bottom, top):
        self.difference = np.zeros_like(bottom[0].data)
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.difference[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.difference**2) / bottom[0].num / 2

    def backward(self, top, propagate_down, bottom):
        for place, sign in enumerate((1, -1)):
            if propagate_down[place]:
                scale = sign * top[0].diff[0] / bottom[0].num
                bottom[place].diff[...] = scale * self.difference


class Affine(caffe.Layer):
    def setup(self, bottom, top):
        scale = json.loads(self.param_str)["scale"]
        self.blobs.add_blob(1)
        self.blobs[0].data[0] = scale
        self.blobs.add_blob(*bottom[0].shape[1:])

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        scale, shift = self.blobs
        top[0].data[...] = scale.data[0] * bottom[0].data + shift.data

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[0] += np.sum(top[0].diff * bottom[0].data)
        self.blobs[1].diff[...] += top[0].diff.sum(axis=0)
        if propagate_down[0]:
            bottom[0].diff[...] = self.blobs[0].data[0] * top[0].diff


class Phase(caffe.Layer):
    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        top[0].data[0] = self.phase


class Failing(caffe.Layer):
    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        raise OSError("the camera is off")


class TenTimes(caffe.Layer):
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        top[0].data[...] = 10 * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 10 * top[0].diff
