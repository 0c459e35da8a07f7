// Callers that were compiled with an older or a newer hvd.h, and what is refused at the border.
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "check.h"
#include "engine/abi_struct.h"
#include "half_world.h"
#include "hvd.h"

namespace {

struct Old {
  uint32_t struct_size;
  int32_t first;
};

struct New {
  uint32_t struct_size;
  int32_t first, second;
};

bool last_error_has(const char* text) { return std::strstr(hvd_last_error(), text) != nullptr; }

// As hvd.h of a later version has them: with something at the end.
struct LaterRequest {
  hvd_request known;
  int64_t more;
};
struct LaterWorld {
  hvd_world known;
  const void* more;
};

// A rank that is alone.
class Single {
 public:
  Single() : engine_(hvd_create(&half_.world)) { CHECK(engine_ != nullptr); }
  ~Single() {
    hvd_shutdown(engine_);
    hvd_destroy(engine_);
  }

  hvd_request request() const {
    hvd_request request{};
    request.struct_size = sizeof request;
    request.kind = HVD_ALLREDUCE;
    request.name = "tensor";
    request.reduce_op = HVD_SUM;
    request.tensor_count = 1;
    request.tensors = &tensor;
    request.prescale = request.postscale = 1.0;
    return request;
  }
  hvd_handle submit(const void* request) {
    return hvd_submit(engine_, static_cast<const hvd_request*>(request));
  }
  bool works(const void* request) {
    value = 3;
    const hvd_handle handle = submit(request);
    if (handle <= 0) return false;
    CHECK(hvd_wait(engine_, handle, 100.0) == HVD_OK);
    hvd_release(engine_, handle);
    return value == 3;
  }

  float value = 3;
  int64_t count = 1;
  hvd_tensor tensor{&value, &value, &count, 1, HVD_FLOAT32, HVD_CPU, 0};

 private:
  HalfWorld half_{0, 1};
  hvd_engine* engine_;
};

}  // namespace

TEST(what_an_older_caller_lacks_has_the_default) {
  const Old old{sizeof(Old), 5};
  New known{sizeof(New), 1, 2};
  CHECK(hvd::take_struct(reinterpret_cast<const New*>(&old), "s", sizeof(Old), &known).ok());
  CHECK(known.struct_size == sizeof(New) && known.first == 5 && known.second == 2);
}

TEST(a_newer_caller_is_refused_only_if_it_uses_what_is_new) {
  New later{sizeof(New), 5, 0};
  Old known{};
  CHECK(hvd::take_struct(reinterpret_cast<const Old*>(&later), "s", sizeof(Old), &known).ok());
  CHECK(known.struct_size == sizeof(Old) && known.first == 5);
  later.second = 1;
  const hvd::Status status = hvd::take_struct(reinterpret_cast<const Old*>(&later), "s", sizeof(Old), &known);
  CHECK(status.code() == HVD_INVALID_ARGUMENT);
  CHECK(status.text().find("s of 12 bytes: its caller is newer") == 0);
}

TEST(requests_of_other_sizes) {
  Single rank;
  hvd_request request = rank.request();
  CHECK(rank.works(&request));
  // Older: what is behind its end is not looked at.
  request.struct_size = offsetof(hvd_request, done);
  std::memset(&request.done, 0xff, sizeof request - offsetof(hvd_request, done));
  CHECK(rank.works(&request));
  request.struct_size = offsetof(hvd_request, tensors);
  CHECK(rank.submit(&request) == HVD_INVALID_ARGUMENT && last_error_has("struct_size"));
  LaterRequest later{rank.request(), 0};
  later.known.struct_size = sizeof later;
  CHECK(rank.works(&later));
  later.more = 1;
  CHECK(rank.submit(&later) == HVD_INVALID_ARGUMENT && last_error_has("install the same version"));
}

TEST(worlds_of_other_sizes) {
  HalfWorld old(0, 1);
  old.world.struct_size = offsetof(hvd_world, mesh_fds);
  std::memset(&old.world.mesh_fds, 0xff, sizeof old.world - offsetof(hvd_world, mesh_fds));
  hvd_engine* engine = hvd_create(&old.world);
  CHECK(engine != nullptr);
  hvd_shutdown(engine);
  hvd_destroy(engine);
  LaterWorld later{HalfWorld(0, 1).world, ""};
  later.known.knobs = nullptr;
  later.known.struct_size = sizeof later;
  CHECK(hvd_create(&later.known) == nullptr && last_error_has("hvd_world"));
  HalfWorld none(0, 1);
  none.world.struct_size = 0;
  CHECK(hvd_create(&none.world) == nullptr && last_error_has("struct_size"));
}

TEST(knobs_that_are_refused_leave_no_descriptor_open) {
  HalfWorld half(0, 2);
  half.knobs.struct_size = 0;
  CHECK(hvd_create(&half.world) == nullptr && last_error_has("hvd_knobs"));
  for (const int fd : half.others) {
    char byte;
    CHECK(read(fd, &byte, 1) == 0);
    close(fd);
  }
}

TEST(tensors_of_other_devices_are_refused) {
  Single rank;
  rank.tensor.device = 1;
  rank.tensor.device_index = 3;
  const hvd_request request = rank.request();
  CHECK(rank.submit(&request) == HVD_INVALID_ARGUMENT);
  CHECK(last_error_has("'tensor'") && last_error_has("device 1:3") && last_error_has("copy it to the CPU"));
}

int main(int argc, char** argv) {
  alarm(60);  // a hang is a failure, too
  return check::run_all(argc, argv);
}
