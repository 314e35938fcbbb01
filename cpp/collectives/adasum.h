#pragma once

#include "collectives/op.h"
#include "transport/wide_group.h"

namespace sirtaki {

/// Adasum of every member's vectors, for each segment on its own.
Task adasum(Group& group, const Op& op, const Segments& in, const Segments& out);
Task adasum(WideGroup& group, const Op& op, const Segments& in, const Segments& out);

}  // namespace sirtaki
