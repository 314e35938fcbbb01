#include "tensorflow/api.h"

#include <dlfcn.h>

namespace sirtaki::tf {

#define SIRTAKI_TF_DEFINE(result, name, arguments) result(*name) arguments = nullptr;
SIRTAKI_TF_FUNCTIONS(SIRTAKI_TF_DEFINE)
#undef SIRTAKI_TF_DEFINE

std::string find_functions() {
  void* library = dlopen("libtensorflow_framework.so.2", RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) return "libtensorflow_framework.so.2";
  std::string missing;
  // The handle is dropped, but the library stays: TensorFlow is never unloaded.
#define SIRTAKI_TF_FIND(result, name, arguments)                       \
  name = reinterpret_cast<result(*) arguments>(dlsym(library, #name)); \
  if (name == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(#name);
  SIRTAKI_TF_FUNCTIONS(SIRTAKI_TF_FIND)
#undef SIRTAKI_TF_FIND
  dlclose(library);
  return missing;
}

}  // namespace sirtaki::tf
