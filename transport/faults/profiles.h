// Fault rules by name: networks and peers that programs meet.
#ifndef TRANSPORT_FAULTS_PROFILES_H_
#define TRANSPORT_FAULTS_PROFILES_H_

#include <string_view>

namespace transport::faults {

struct Profile {
  std::string_view name;
  std::string_view what;   // one line
  std::string_view rules;  // each rule contains `maybe`
};

// The chances are per packet: a message of 1 MiB has 256 of them with a path
// MTU of 4,096 bytes.
inline constexpr Profile kProfiles[] = {
    {"lossy", "a link that loses one packet in a hundred", "drop p=1% maybe"},
    {"wifi", "losses, and delays that let packets overtake each other",
     "drop p=0.5% maybe; delay 500us~2ms p=10% maybe; "
     "reorder 3 p=2% maybe"},
    {"incast", "a full switch: marks, queues and losses of data that arrives",
     "ce rx op=data p=20% maybe; drop rx op=data p=0.5% maybe; "
     "delay 50us~200us rx op=data p=20% maybe"},
    {"slow-peer",
     "a device that stops for 20 ms, every 500 packets, and is "
     "sometimes not ready to receive",
     "stall 20ms every=500 maybe; rnr 1ms rx p=1% maybe"},
    {"flaky-link", "a link that is down for 200 ms, three times in ten seconds",
     "drop after=1s for=200ms maybe; drop after=4s for=200ms maybe; "
     "drop after=9s for=200ms maybe"},
};

// Null if no profile has this name.
constexpr const Profile* FindProfile(std::string_view name) {
  for (const Profile& profile : kProfiles) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_PROFILES_H_
