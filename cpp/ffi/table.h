#pragma once

#include <memory>

#include "ffi/sirtaki.h"

namespace sirtaki {

class Engine;

/// The functions that other libraries call.
const sirtaki_table& ffi_table();

/// Which engine they find; null: none. The one thing here that belongs to the process.
void set_current_engine(std::shared_ptr<Engine> engine);

}  // namespace sirtaki
