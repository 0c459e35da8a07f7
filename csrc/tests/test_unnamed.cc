// Operations without a name, and those that block on the default engine.
#include <string>
#include <vector>

#include "check.h"
#include "thread_world.h"

namespace {

constexpr int64_t kCount = 5;

struct Reduction {
  std::vector<float> data;
  hvd_tensor tensor;
  hvd_request request;

  explicit Reduction(float value, const char* name = "allreduce", int set = 0)
      : data(kCount, value), tensor{data.data(), data.data(), &kCount, 1, HVD_FLOAT32, HVD_CPU, 0} {
    request = Rank::request(HVD_ALLREDUCE, name);
    request.tensors = &tensor;
    request.tensor_count = 1;
    request.process_set = set;
    request.unnamed = 1;
  }
};

int reduce(Rank& rank, float value, float expected, int set = 0) {
  Reduction reduction(value, "allreduce", set);
  const hvd_handle handle = rank.submit(reduction.request);
  if (handle < 0) return static_cast<int>(handle);
  const int code = rank.finish(handle);
  if (code == HVD_OK) CHECK(reduction.data[kCount - 1] == expected);
  return code;
}

}  // namespace

TEST(are_matched_by_the_order_of_the_calls) {
  ThreadWorld(3).run([](Rank& rank) {
    Reduction first(1), second(10), other(100, "other");
    // Another operation has numbers of its own: it may come at any time.
    hvd_handle early = rank.rank == 0 ? rank.submit(other.request) : 0;
    const hvd_handle one = rank.submit(first.request), two = rank.submit(second.request);
    if (early == 0) early = rank.submit(other.request);
    for (const hvd_handle handle : {two, one, early}) CHECK(rank.finish(handle) == HVD_OK);
    CHECK(first.data[0] == 3 && second.data[0] == 30 && other.data[0] == 300);
  });
}

TEST(a_refused_one_does_not_count) {
  ThreadWorld(2).run([](Rank& rank) {
    if (rank.rank == 1) {
      Reduction bad(1);
      bad.tensor.dtype = 99;
      CHECK(rank.submit(bad.request) == HVD_INVALID_ARGUMENT);
      Reduction elsewhere(1, "allreduce", 7);
      CHECK(rank.submit(elsewhere.request) == HVD_INVALID_ARGUMENT);
      // Refused by what only the numbered name reaches: the set is there, the root is not in it.
      Reduction rootless(1);
      rootless.request.kind = HVD_BROADCAST;
      rootless.request.root_rank = 5;
      CHECK(rank.submit(rootless.request) == HVD_INVALID_ARGUMENT);
    }
    CHECK(reduce(rank, 2, 4) == HVD_OK);
  });
}

TEST(counting_starts_anew_after_a_join) {
  ThreadWorld(2).run([](Rank& rank) {
    for (int i = 0; i <= rank.rank; ++i) CHECK(reduce(rank, 1, i == 0 ? 2 : 1) == HVD_OK);
    int64_t last = -1;
    CHECK(rank.simple(HVD_JOIN, "join", &last) == HVD_OK && last == 1);
    CHECK(reduce(rank, 3, 6) == HVD_OK);
  });
}

TEST(counting_starts_anew_in_a_new_set_with_an_old_number) {
  ThreadWorld(3).run([](Rank& rank) {
    int64_t set = 0, again = 0;
    CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &set, 0, {0, 1}) == HVD_OK);
    if (rank.rank < 2) CHECK(reduce(rank, 1, 2, static_cast<int>(set)) == HVD_OK);
    CHECK(rank.simple(HVD_REMOVE_PROCESS_SET, "remove", nullptr, static_cast<int>(set)) == HVD_OK);
    CHECK(rank.simple(HVD_ADD_PROCESS_SET, "add", &again, 0, {1, 2}) == HVD_OK && again == set);
    if (rank.rank > 0) CHECK(reduce(rank, 4, 8, static_cast<int>(set)) == HVD_OK);
    CHECK(rank.simple(HVD_BARRIER, "end") == HVD_OK);  // rank 0's end would be that of the others' operation
  });
}

TEST(running_on_the_default_engine_waits_and_tells) {
  Reduction alone(1);
  CHECK(hvd_run_default(&alone.request) == HVD_FAILED_PRECONDITION);
  CHECK(std::string(hvd_last_error()).find("hvd.init()") != std::string::npos);
  ThreadWorld(2).run([](Rank& rank) {
    if (rank.rank == 1) {  // counts together with what is run on the default engine
      CHECK(reduce(rank, 2, 3) == HVD_OK);
      Reduction other(1);
      other.tensor.dtype = HVD_INT32;
      CHECK(rank.finish(rank.submit(other.request)) == HVD_FAILED_PRECONDITION);
      CHECK(reduce(rank, 5, 9) == HVD_OK);
      return;
    }
    hvd_set_default(rank.engine);
    Reduction mine(1);
    int told = 99;
    mine.request.user = &told;
    mine.request.done = [](void* user, const hvd_outcome* outcome) {
      *static_cast<int*>(user) = outcome->code;
    };
    CHECK(hvd_run_default(&mine.request) == HVD_OK && mine.data[0] == 3 && told == HVD_OK);
    CHECK(hvd_run_default(&mine.request) == HVD_FAILED_PRECONDITION && told == HVD_FAILED_PRECONDITION);
    CHECK(std::string(hvd_last_error()).find("allreduce.noname.1") != std::string::npos);
    Reduction last(4);
    CHECK(hvd_run_default(&last.request) == HVD_OK && last.data[0] == 9);
    hvd_set_default(nullptr);
  });
}

int main(int argc, char** argv) { return check::run_all(argc, argv); }
