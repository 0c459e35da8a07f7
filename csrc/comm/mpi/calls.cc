#include "comm/mpi/calls.h"

namespace hvd {

namespace {

// The communicator is the engine's own and messages between two ranks stay in order: one tag is enough.
constexpr int kTag = 0;
constexpr size_t kTextBytes = 4096;  // more than any MPI_MAX_ERROR_STRING

// `Handle` is what the functions take by value: int or a pointer.
template <typename Handle>
class TypedCalls final : public MpiCalls {
 public:
  TypedCalls(const hvd_mpi& mpi, Handle communicator, Handle byte_type)
      : communicator_(communicator),
        byte_type_(byte_type),
        isend_(reinterpret_cast<Isend>(mpi.isend)),
        irecv_(reinterpret_cast<Irecv>(mpi.irecv)),
        test_(reinterpret_cast<Test>(mpi.test)),
        error_string_(reinterpret_cast<ErrorString>(mpi.error_string)) {}

  int send(const void* data, size_t bytes, int rank, MpiRequest* request) override {
    return isend_(data, static_cast<int>(bytes), byte_type_, rank, kTag, communicator_, request);
  }
  int receive(void* data, size_t bytes, int rank, MpiRequest* request) override {
    return irecv_(data, static_cast<int>(bytes), byte_type_, rank, kTag, communicator_, request);
  }
  int test(MpiRequest* request, bool* done) override {
    int flag = 0;
    // Larger than any MPI_Status. MPI_STATUS_IGNORE would do, but is a different pointer in each MPI.
    alignas(16) unsigned char status[256];
    int code = test_(request, &flag, status);
    *done = flag != 0;
    return code;
  }
  std::string describe(int code) override {
    char text[kTextBytes] = "";
    int length = 0;
    if (error_string_(code, text, &length) != 0) return "MPI error " + std::to_string(code);
    return {text, static_cast<size_t>(length)};
  }

 private:
  using Isend = int (*)(const void*, int, Handle, int, int, Handle, MpiRequest*);
  using Irecv = int (*)(void*, int, Handle, int, int, Handle, MpiRequest*);
  using Test = int (*)(MpiRequest*, int*, void*);
  using ErrorString = int (*)(int, char*, int*);

  const Handle communicator_, byte_type_;
  const Isend isend_;
  const Irecv irecv_;
  const Test test_;
  const ErrorString error_string_;
};

}  // namespace

std::unique_ptr<MpiCalls> make_mpi_calls(const hvd_mpi& mpi) {
  if (mpi.handle_bytes == sizeof(int))
    return std::make_unique<TypedCalls<int>>(mpi, static_cast<int>(mpi.communicator),
                                             static_cast<int>(mpi.byte_type));
  if (mpi.handle_bytes == sizeof(void*))
    return std::make_unique<TypedCalls<void*>>(mpi, reinterpret_cast<void*>(mpi.communicator),
                                               reinterpret_cast<void*>(mpi.byte_type));
  return nullptr;
}

}  // namespace hvd
