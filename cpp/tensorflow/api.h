#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// The part of TensorFlow's C interface for operations and kernels that is used here (declared in
/// tensorflow/c/kernels.h and ops.h). The build needs none of it: every function is looked up in
/// the TensorFlow that the process has loaded.
extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpKernelContext;
struct TF_OpKernelConstruction;
struct TF_AsyncOpKernelDoneCallback;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
}

namespace sirtaki::tf {

/// Of TF_Code.
enum Code : int {
  kOk = 0,
  kInvalidArgument = 3,
  kFailedPrecondition = 9,
  kAborted = 10,
};

/// Of TF_DataType.
enum DataType : int {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kComplex128 = 18,
  kHalf = 19,
  kUint32 = 22,
  kUint64 = 23,
};

using Create = void* (*)(TF_OpKernelConstruction*);
using Compute = void (*)(void* kernel, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using Delete = void (*)(void* kernel);
using InferShapes = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// clang-format off
#define SIRTAKI_TF_FUNCTIONS(X)                                                                    \
  X(TF_Status*, TF_NewStatus, ())                                                                  \
  X(void, TF_DeleteStatus, (TF_Status*))                                                           \
  X(int, TF_GetCode, (const TF_Status*))                                                           \
  X(const char*, TF_Message, (const TF_Status*))                                                   \
  X(void, TF_SetStatus, (TF_Status*, int code, const char* message))                               \
  X(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char* name))                        \
  X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char* spec))              \
  X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char* spec))             \
  X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char* spec))            \
  X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                    \
  X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction,                                         \
    (TF_OpDefinitionBuilder*, InferShapes))                                                        \
  X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                          \
  X(TF_KernelBuilder*, TF_NewAsyncKernelBuilder,                                                   \
    (const char* op, const char* device, Create, Compute, Delete))                                 \
  X(void, TF_KernelBuilder_HostMemory, (TF_KernelBuilder*, const char* argument))                  \
  X(void, TF_RegisterKernelBuilder, (const char* name, TF_KernelBuilder*, TF_Status*))             \
  X(void, TF_OpKernelConstruction_GetAttrSize,                                                     \
    (TF_OpKernelConstruction*, const char* name, int32_t* list, int32_t* total, TF_Status*))       \
  X(void, TF_OpKernelConstruction_GetAttrString,                                                   \
    (TF_OpKernelConstruction*, const char* name, char* value, size_t length, TF_Status*))          \
  X(void, TF_OpKernelConstruction_GetAttrInt64,                                                    \
    (TF_OpKernelConstruction*, const char* name, int64_t* value, TF_Status*))                      \
  X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                 \
  X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                           \
  X(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))                        \
  X(int, TF_NumInputs, (TF_OpKernelContext*))                                                      \
  X(void, TF_GetInput, (TF_OpKernelContext*, int index, TF_Tensor**, TF_Status*))                  \
  X(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                                   \
    (TF_OpKernelContext*, const int* candidates, int count, int output, const int64_t* shape,      \
     int dimensions, int* forwarded, TF_Status*))                                                  \
  X(TF_Tensor*, TF_AllocateOutput,                                                                 \
    (TF_OpKernelContext*, int output, int type, const int64_t* shape, int dimensions,              \
     size_t bytes, TF_Status*))                                                                    \
  X(void, TF_DeleteTensor, (TF_Tensor*))                                                           \
  X(void*, TF_TensorData, (const TF_Tensor*))                                                      \
  X(size_t, TF_TensorByteSize, (const TF_Tensor*))                                                 \
  X(int, TF_TensorType, (const TF_Tensor*))                                                        \
  X(int, TF_NumDims, (const TF_Tensor*))                                                           \
  X(int64_t, TF_Dim, (const TF_Tensor*, int))                                                      \
  X(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                       \
  X(TF_ShapeHandle*, TF_NewShapeHandle, ())                                                        \
  X(void, TF_DeleteShapeHandle, (TF_ShapeHandle*))                                                 \
  X(void, TF_ShapeInferenceContextGetInput,                                                        \
    (TF_ShapeInferenceContext*, int index, TF_ShapeHandle*, TF_Status*))                           \
  X(void, TF_ShapeInferenceContextSetOutput,                                                       \
    (TF_ShapeInferenceContext*, int index, TF_ShapeHandle*, TF_Status*))                           \
  X(void, TF_ShapeInferenceContextWithRankAtLeast,                                                 \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t rank, TF_ShapeHandle*, TF_Status*))       \
  X(TF_ShapeHandle*, TF_ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext*, size_t))  \
  X(TF_ShapeHandle*, TF_ShapeInferenceContextScalar, (TF_ShapeInferenceContext*))                  \
  X(void, TF_ShapeInferenceContextSubshape,                                                        \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t begin, int64_t end, TF_ShapeHandle*,      \
     TF_Status*))                                                                                  \
  X(void, TF_ShapeInferenceContextConcatenateShapes,                                               \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))
// clang-format on

#define SIRTAKI_TF_DECLARE(result, name, arguments) extern result(*name) arguments;
SIRTAKI_TF_FUNCTIONS(SIRTAKI_TF_DECLARE)
#undef SIRTAKI_TF_DECLARE

/// Looks up the functions; returns what is missing, "" if nothing is.
std::string find_functions();

/// A TF_Status with an owner.
class Status {
 public:
  Status() : status_(TF_NewStatus()) {}
  ~Status() { TF_DeleteStatus(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  operator TF_Status*() const { return status_; }
  bool ok() const { return TF_GetCode(status_) == kOk; }
  std::string message() const { return TF_Message(status_); }

 private:
  TF_Status* status_;
};

}  // namespace sirtaki::tf
