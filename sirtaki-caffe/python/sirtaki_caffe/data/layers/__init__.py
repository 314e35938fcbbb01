"""The data layers of a net, and HDF5Output."""

from sirtaki_caffe.data.layers import annotated, database, hdf5, image_list, made, window

__all__ = ["annotated", "database", "hdf5", "image_list", "made", "window"]
