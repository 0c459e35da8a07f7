// The table of our ops, registered when TensorFlow loads this library.
#include <string>
#include <vector>

#include "adapters/tensorflow/attributes.h"
#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/collective.h"
#include "adapters/tensorflow/completion.h"
#include "adapters/tensorflow/owned.h"
#include "adapters/tensorflow/place.h"
#include "adapters/tensorflow/shapes.h"
#include "adapters/tensorflow/step_end.h"
#include "hvd.h"
#include "kinds.h"

namespace hvd::tensorflow {
namespace {

struct Definition {
  const char* type;
  std::vector<const char*> inputs;
  std::vector<const char*> outputs;
  std::vector<const char*> attributes;
  ShapeFn shapes;
  CreateFn create;
  ComputeAsyncFn compute_async;  // one of these two
  ComputeFn compute;
  DeleteFn destroy;
};

void run(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  run_collective(*static_cast<Attributes*>(kernel), context, done);
}

void destroy(void* kernel) { delete static_cast<Attributes*>(kernel); }

#define HVD_REDUCIBLE \
  "uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double, complex64, complex128"
constexpr auto kReducible = "T: {" HVD_REDUCIBLE "}";
constexpr auto kReducibleList = "T: list({" HVD_REDUCIBLE "}) >= 1";
constexpr auto kAny = "T: {" HVD_REDUCIBLE ", uint32, uint64, bool}";
constexpr auto kAnyList = "T: list({" HVD_REDUCIBLE ", uint32, uint64, bool}) >= 1";
constexpr auto kName = "tensor_name: string = ''";
constexpr auto kScope = "ignore_name_scope: bool = false";
constexpr auto kSet = "process_set_id: int = 0";
constexpr auto kOp = "reduce_op: int";
constexpr auto kPrescale = "prescale_factor: float = 1.0";
constexpr auto kPostscale = "postscale_factor: float = 1.0";
constexpr auto kStays = "stays: bool = false";  // the thread that comes here helps, see collective.cc

// Everything that TensorFlow has to know of a collective follows from its kind.
Definition collective(const char* type, int32_t kind, bool grouped, CreateFn create) {
  Definition op{type, {}, {}, {}, no_outputs, create, run, nullptr, destroy};
  if (has(kind, kHasTensors)) {
    op.inputs.push_back(grouped ? "tensors: T" : "tensor: T");
    op.outputs.push_back(kind == HVD_ALLREDUCE ? "sum: T" : "output: T");
    op.shapes = has(kind, kKeepsShape) ? same_shapes : unknown_rows;
    if (has(kind, kReduces)) {
      op.attributes.push_back(grouped ? kReducibleList : kReducible);
    } else {
      op.attributes.push_back(grouped ? kAnyList : kAny);
    }
    op.attributes.insert(op.attributes.end(), {kName, kScope});
  } else if (has(kind, kHasResult)) {
    op.outputs.push_back("output: int32");
    op.shapes = scalar;
  }
  if (!has(kind, kOfAllRanks)) op.attributes.push_back(kSet);
  if (has(kind, kReduces)) op.attributes.insert(op.attributes.end(), {kOp, kPrescale, kPostscale});
  if (kind == HVD_ALLREDUCE) op.attributes.push_back(kStays);
  if (has(kind, kHasRoot)) op.attributes.push_back("root_rank: int");
  if (has(kind, kHasSplits)) {
    op.inputs.push_back("splits: int32");
    op.outputs.push_back("received_splits: int32");
    op.shapes = alltoall_shapes;
    op.attributes.push_back("even_splits: bool = false");
  }
  return op;
}

// The C API gives kernel constructors no argument of ours, so each op has a function of its own.
#define HVD_COLLECTIVE(type, kind, grouped)                                            \
  collective(type, kind, grouped, [](TF_OpKernelConstruction* construction) -> void* { \
    return new Attributes(read_attributes(construction, type, kind));                  \
  })

std::vector<Definition> definitions() {
  using Args = std::vector<const char*>;
  const Args number{"output: int32"}, none;
  return {
      HVD_COLLECTIVE("HorovodAllreduce", HVD_ALLREDUCE, false),
      HVD_COLLECTIVE("HorovodGroupedAllreduce", HVD_ALLREDUCE, true),
      HVD_COLLECTIVE("HorovodAllgather", HVD_ALLGATHER, false),
      HVD_COLLECTIVE("HorovodGroupedAllgather", HVD_ALLGATHER, true),
      HVD_COLLECTIVE("HorovodBroadcast", HVD_BROADCAST, false),
      HVD_COLLECTIVE("HorovodGroupedBroadcast", HVD_BROADCAST, true),
      HVD_COLLECTIVE("HorovodAlltoall", HVD_ALLTOALL, false),
      HVD_COLLECTIVE("HorovodReducescatter", HVD_REDUCESCATTER, false),
      HVD_COLLECTIVE("HorovodGroupedReducescatter", HVD_REDUCESCATTER, true),
      HVD_COLLECTIVE("HorovodJoin", HVD_JOIN, false),
      HVD_COLLECTIVE("HorovodBarrier", HVD_BARRIER, false),
      {"HorovodSize", none, number, {kSet}, scalar, create_set_query, nullptr, compute_size, delete_query},
      {"HorovodProcessSetIncluded",
       none,
       number,
       {kSet},
       scalar,
       create_set_query,
       nullptr,
       compute_included,
       delete_query},
      {"HorovodRank", none, number, {}, scalar, create_query, nullptr, compute_rank, delete_query},
      {"HorovodLocalRank", none, number, {}, scalar, create_query, nullptr, compute_local_rank, delete_query},
      {"HorovodLocalSize", none, number, {}, scalar, create_query, nullptr, compute_local_size, delete_query},
      {"HorovodEndStep",
       none,
       none,
       {"kind: int"},
       no_outputs,
       create_step_end,
       nullptr,
       compute_step_end,
       delete_step_end},
  };
}

// The first failure, for whoever loaded us; "" if there was none.
std::string& failure() {
  static auto* text = new std::string;
  return *text;
}

bool note(const char* type, const TfStatus& status) {
  if (!status.ok() && failure().empty())
    failure() = std::string("can't register ") + type + ": " + status.text();
  return status.ok();
}

bool register_op(const Definition& definition) {
  TF_OpDefinitionBuilder* builder = api().TF_NewOpDefinitionBuilder(definition.type);
  for (const char* attribute : definition.attributes) api().TF_OpDefinitionBuilderAddAttr(builder, attribute);
  for (const char* input : definition.inputs) api().TF_OpDefinitionBuilderAddInput(builder, input);
  for (const char* output : definition.outputs) api().TF_OpDefinitionBuilderAddOutput(builder, output);
  // Otherwise equal operations would be merged and those on constants computed beforehand, perhaps on one
  // rank only.
  api().TF_OpDefinitionBuilderSetIsStateful(builder, true);
  api().TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, definition.shapes);
  TfStatus status;
  api().TF_RegisterOpDefinition(builder, status.get());
  return note(definition.type, status);
}

// The engine works in host memory. On a GPU TensorFlow then copies for us.
void register_kernel(const Definition& definition, const char* device) {
  const char* type = definition.type;
  TF_KernelBuilder* builder =
      definition.compute_async != nullptr
          ? api().TF_NewAsyncKernelBuilder(type, device, definition.create, definition.compute_async,
                                           definition.destroy)
          : api().TF_NewKernelBuilder(type, device, definition.create, definition.compute,
                                      definition.destroy);
  for (const auto* arguments : {&definition.inputs, &definition.outputs}) {
    for (const std::string argument : *arguments)
      api().TF_KernelBuilder_HostMemory(builder, argument.substr(0, argument.find(':')).c_str());
  }
  TfStatus status;
  api().TF_RegisterKernelBuilder(type, builder, status.get());
  note(type, status);
}

__attribute__((constructor)) void register_all() {
  if (const char* missing = load_api()) {
    failure() = std::string("this TensorFlow has no function ") + missing + "; versions 2.13 to 2.21 have";
    return;
  }
  find_tensorflow_code();
  for (const Definition& definition : definitions()) {
    if (!register_op(definition)) return;
    register_kernel(definition, "CPU");
    register_kernel(definition, "GPU");
  }
}

}  // namespace
}  // namespace hvd::tensorflow

// Why the ops are not there, "" if they are.
extern "C" HVD_API const char* horovod_tf_failure(void) { return hvd::tensorflow::failure().c_str(); }
