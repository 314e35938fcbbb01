#pragma once

#include <memory>

#include "ffi/sirtaki.h"

namespace sirtaki {

class Engine;

/// The functions for other libraries.
const sirtaki_table& ffi_table();

/// Sets the engine that they use; null: none. The only process-wide state here.
void set_current_engine(std::shared_ptr<Engine> engine);

}  // namespace sirtaki
