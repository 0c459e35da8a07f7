// The part of TensorFlow's C API that our ops use, declared by ourselves and found at run time, so that one
// library built without TensorFlow serves every version from 2.13 on. Functions that left some version are
// not used.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_StringView {
  const char* data;
  size_t len;
};
}

namespace hvd::tensorflow {

using TF_DataType = int;
enum : TF_DataType {
  TF_FLOAT = 1,
  TF_DOUBLE = 2,
  TF_INT32 = 3,
  TF_UINT8 = 4,
  TF_INT16 = 5,
  TF_INT8 = 6,
  TF_COMPLEX64 = 8,
  TF_INT64 = 9,
  TF_BOOL = 10,
  TF_BFLOAT16 = 14,
  TF_UINT16 = 17,
  TF_COMPLEX128 = 18,
  TF_HALF = 19,
  TF_UINT32 = 22,
  TF_UINT64 = 23,
};

using TF_Code = int;
enum : TF_Code {
  TF_OK = 0,
  TF_UNKNOWN = 2,
  TF_INVALID_ARGUMENT = 3,
  TF_FAILED_PRECONDITION = 9,
  TF_ABORTED = 10,
};

using CreateFn = void* (*)(TF_OpKernelConstruction*);
using ComputeFn = void (*)(void*, TF_OpKernelContext*);
using ComputeAsyncFn = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using DeleteFn = void (*)(void*);
using ShapeFn = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// X(result, name, arguments)
#define HVD_TF_FUNCTIONS(X)                                                                                  \
  X(TF_Status*, TF_NewStatus, ())                                                                            \
  X(void, TF_DeleteStatus, (TF_Status*))                                                                     \
  X(void, TF_SetStatus, (TF_Status*, TF_Code, const char*))                                                  \
  X(TF_Code, TF_GetCode, (const TF_Status*))                                                                 \
  X(const char*, TF_Message, (const TF_Status*))                                                             \
  X(void, TF_DeleteTensor, (TF_Tensor*))                                                                     \
  X(TF_DataType, TF_TensorType, (const TF_Tensor*))                                                          \
  X(int, TF_NumDims, (const TF_Tensor*))                                                                     \
  X(int64_t, TF_Dim, (const TF_Tensor*, int))                                                                \
  X(void*, TF_TensorData, (const TF_Tensor*))                                                                \
  X(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char*))                                       \
  X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                             \
  X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                            \
  X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                           \
  X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                              \
  X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, ShapeFn))               \
  X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                    \
  X(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                                 \
  X(TF_ShapeHandle*, TF_NewShapeHandle, ())                                                                  \
  X(void, TF_DeleteShapeHandle, (TF_ShapeHandle*))                                                           \
  X(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))   \
  X(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))  \
  X(TF_ShapeHandle*, TF_ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext*, size_t))            \
  X(TF_ShapeHandle*, TF_ShapeInferenceContextScalar, (TF_ShapeInferenceContext*))                            \
  X(int, TF_ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                    \
  X(int64_t, TF_ShapeInferenceContextRank, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                     \
  X(void, TF_ShapeInferenceContextSubshape,                                                                  \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t, int64_t, TF_ShapeHandle*, TF_Status*))             \
  X(void, TF_ShapeInferenceContextConcatenateShapes,                                                         \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))              \
  X(TF_KernelBuilder*, TF_NewKernelBuilder, (const char*, const char*, CreateFn, ComputeFn, DeleteFn))       \
  X(TF_KernelBuilder*, TF_NewAsyncKernelBuilder,                                                             \
    (const char*, const char*, CreateFn, ComputeAsyncFn, DeleteFn))                                          \
  X(void, TF_KernelBuilder_HostMemory, (TF_KernelBuilder*, const char*))                                     \
  X(void, TF_RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*))                            \
  X(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))                                  \
  X(TF_StringView, TF_OpKernelConstruction_GetName, (TF_OpKernelConstruction*))                              \
  X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                           \
  X(void, TF_OpKernelConstruction_GetAttrSize,                                                               \
    (TF_OpKernelConstruction*, const char*, int32_t*, int32_t*, TF_Status*))                                 \
  X(void, TF_OpKernelConstruction_GetAttrString,                                                             \
    (TF_OpKernelConstruction*, const char*, char*, size_t, TF_Status*))                                      \
  X(void, TF_OpKernelConstruction_GetAttrInt64,                                                              \
    (TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*))                                           \
  X(void, TF_OpKernelConstruction_GetAttrFloat, (TF_OpKernelConstruction*, const char*, float*, TF_Status*)) \
  X(void, TF_OpKernelConstruction_GetAttrBool,                                                               \
    (TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*))                                     \
  X(int, TF_NumInputs, (TF_OpKernelContext*))                                                                \
  X(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                  \
  X(TF_Tensor*, TF_AllocateOutput,                                                                           \
    (TF_OpKernelContext*, int, TF_DataType, const int64_t*, int, size_t, TF_Status*))                        \
  X(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                                             \
    (TF_OpKernelContext*, const int*, int, int, const int64_t*, int, int*, TF_Status*))                      \
  X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))

// The functions by their own names, as members.
struct Api {
#define HVD_TF_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  HVD_TF_FUNCTIONS(HVD_TF_MEMBER)
#undef HVD_TF_MEMBER
};

// The name of the first function that this process's TensorFlow lacks, NULL if all are there. To be called
// once, before api().
const char* load_api();
const Api& api();

}  // namespace hvd::tensorflow
