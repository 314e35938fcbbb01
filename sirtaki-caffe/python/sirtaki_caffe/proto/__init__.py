"""Caffe's file formats: schema, text, upgrades, weights, states."""
