// Each byte between two ranks goes over one stream, and both ends know which, however each asks for them.
#include <random>
#include <vector>

#include "check.h"
#include "comm/tcp/stripes.h"

namespace {

using hvd::kStripe;
using hvd::next_stripe;

// The stream of each byte, if `total` bytes go in transfers of these lengths, again and again, and each
// stream moves up to `burst` at a time.
std::vector<int> streams_of(size_t total, const std::vector<size_t>& transfers, size_t streams,
                            size_t burst) {
  std::vector<int> owner(total, -1);
  size_t begin = 0;
  for (size_t i = 0; begin < total; ++i) {
    const size_t end = std::min(total, begin + transfers[i % transfers.size()]);
    for (size_t stream = 0; stream < streams; ++stream) {
      size_t at = begin;
      for (;;) {
        const hvd::Stripe stripe = next_stripe(at, end, stream, streams);
        CHECK(at <= stripe.begin && stripe.begin <= stripe.end && stripe.end <= end);
        if (stripe.bytes() == 0) break;
        at = std::min(stripe.end, stripe.begin + burst);
        for (size_t byte = stripe.begin; byte < at; ++byte) {
          CHECK(owner[byte] == -1);
          owner[byte] = static_cast<int>(stream);
        }
      }
      CHECK(next_stripe(at, end, stream, streams).begin == end);
    }
    begin = end;
  }
  return owner;
}

}  // namespace

TEST(every_byte_goes_over_one_stream_that_both_ends_know) {
  std::mt19937_64 random(1);
  for (size_t streams : {1, 2, 3, 4, 16}) {
    for (size_t total : {size_t{1}, kStripe - 1, kStripe, kStripe + 1, 2 * kStripe, 3 * kStripe + 1,
                         16 * kStripe, 17 * kStripe - 1, 5 * streams * kStripe + 7}) {
      const std::vector<int> owner = streams_of(total, {total}, streams, total);
      for (size_t byte = 0; byte < total; ++byte)
        CHECK(owner[byte] == static_cast<int>(byte / kStripe % streams));
      for (int round = 0; round < 5; ++round) {
        std::vector<size_t> transfers(1 + random() % 4);
        for (size_t& bytes : transfers) bytes = 1 + random() % (3 * kStripe);
        CHECK(streams_of(total, transfers, streams, 1 + random() % (2 * kStripe)) == owner);
      }
    }
  }
}

TEST(short_messages_have_one_stream) {
  for (size_t streams : {2, 16}) {
    CHECK(next_stripe(0, kStripe, 0, streams).bytes() == kStripe);
    for (size_t stream = 1; stream < streams; ++stream) {
      CHECK(next_stripe(0, kStripe, stream, streams).bytes() == 0);
      CHECK(next_stripe(0, kStripe + 1, stream, streams).bytes() == (stream == 1 ? 1 : 0));
    }
  }
}

TEST(one_stream_is_not_cut) { CHECK(next_stripe(5, 100 * kStripe, 0, 1).bytes() == 100 * kStripe - 5); }

int main(int argc, char** argv) { return check::run_all(argc, argv); }
