#include "rxe_user/devices/link_rate.h"

#include "absl/strings/str_cat.h"

namespace rxe_user {
namespace {

struct Row {
  uint64_t mbps;
  LinkRate rate;
};
constexpr Row kRates[] = {
    {400000, {2, 128}}, {200000, {2, 64}}, {100000, {2, 32}}, {56000, {2, 16}},
    {50000, {1, 64}},   {40000, {2, 8}},   {25000, {1, 32}},  {20000, {2, 2}},
    {10000, {1, 8}},    {0, {1, 1}},
};

struct Speed {
  uint8_t speed;
  int tenths;  // of a Gbit/s per lane
  const char* name;
};
// sysfs has no name for the lowest speed, 2.5 Gbit/s.
constexpr Speed kSpeeds[] = {
    {2, 50, " DDR"},     {4, 100, " QDR"},  {8, 100, " FDR10"},
    {16, 140, " FDR"},   {32, 250, " EDR"}, {64, 500, " HDR"},
    {128, 1000, " NDR"},
};

}  // namespace

LinkRate LinkRateOf(uint64_t mbps) {
  const Row* row = kRates;
  while (row->mbps > mbps) ++row;
  return row->rate;
}

std::string LinkRateText(LinkRate rate) {
  Speed speed = {1, 25, ""};
  for (const Speed& s : kSpeeds) {
    if (s.speed == rate.speed) speed = s;
  }
  const int lanes = rate.width == 2 ? 4 : 1;
  const int tenths = speed.tenths * lanes;
  return absl::StrCat(tenths / 10, tenths % 10 != 0 ? ".5" : "", " Gb/sec (",
                      lanes, "X", speed.name, ")");
}

}  // namespace rxe_user
