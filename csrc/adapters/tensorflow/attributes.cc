#include "adapters/tensorflow/attributes.h"

#include "adapters/tensorflow/owned.h"
#include "hvd.h"
#include "kinds.h"

namespace hvd::tensorflow {
namespace {

class Reader {
 public:
  explicit Reader(TF_OpKernelConstruction* construction) : construction_(construction) {}
  ~Reader() {
    if (!status_.ok()) api().TF_OpKernelConstruction_Failure(construction_, status_.get());
  }

  int32_t integer(const char* attribute) {
    int64_t value = 0;
    if (status_.ok())
      api().TF_OpKernelConstruction_GetAttrInt64(construction_, attribute, &value, status_.get());
    return static_cast<int32_t>(value);
  }

  double real(const char* attribute) {
    float value = 0;
    if (status_.ok())
      api().TF_OpKernelConstruction_GetAttrFloat(construction_, attribute, &value, status_.get());
    return value;
  }

  bool boolean(const char* attribute) {
    unsigned char value = 0;
    if (status_.ok())
      api().TF_OpKernelConstruction_GetAttrBool(construction_, attribute, &value, status_.get());
    return value != 0;
  }

  std::string text(const char* attribute) {
    int32_t list = 0, bytes = 0;
    if (status_.ok())
      api().TF_OpKernelConstruction_GetAttrSize(construction_, attribute, &list, &bytes, status_.get());
    std::string value(static_cast<size_t>(bytes), '\0');
    if (status_.ok() && bytes > 0)
      api().TF_OpKernelConstruction_GetAttrString(construction_, attribute, value.data(), value.size(),
                                                  status_.get());
    return value;
  }

  std::string node_name() {
    const TF_StringView view = api().TF_OpKernelConstruction_GetName(construction_);
    return {view.data, view.len};
  }

 private:
  TF_OpKernelConstruction* construction_;
  TfStatus status_;
};

// Eager operations have no node of their own, so a name given by the user comes as an attribute. In graphs
// the node's name is better: where a function is called twice, each call's nodes have names of their own.
std::string name_of(Reader& reader) {
  std::string name = reader.text("tensor_name");
  if (name.empty()) name = reader.node_name();
  if (reader.boolean("ignore_name_scope")) {
    const size_t slash = name.rfind('/');
    if (slash != std::string::npos) name.erase(0, slash + 1);
  }
  return name;
}

}  // namespace

Attributes read_attributes(TF_OpKernelConstruction* construction, const char* op_type, int32_t kind) {
  Reader reader(construction);
  Attributes attributes;
  attributes.op_type = op_type;
  attributes.kind = kind;
  if (!has(kind, kOfAllRanks)) attributes.process_set = reader.integer("process_set_id");
  attributes.name = has(kind, kHasTensors) ? name_of(reader) : std::string(kind_name(kind)) + ".noname";
  if (has(kind, kHasRoot)) attributes.root_rank = reader.integer("root_rank");
  if (has(kind, kHasSplits)) attributes.even_splits = reader.boolean("even_splits");
  if (has(kind, kReduces)) {
    attributes.reduce_op = reader.integer("reduce_op");
    attributes.prescale = reader.real("prescale_factor");
    attributes.postscale = reader.real("postscale_factor");
    if (kind == HVD_ALLREDUCE && reader.boolean("stays")) attributes.patience = std::make_shared<Patience>();
  }
  return attributes;
}

}  // namespace hvd::tensorflow
