#include "tools/rxe_user_cli/libpcap.h"

#include <dlfcn.h>

namespace rxe_user_cli {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

const Libpcap* LoadLibpcap(std::string* why) {
  // Debian's name, then that of other systems.
  void* library = dlopen("libpcap.so.0.8", RTLD_NOW);
  if (library == nullptr) library = dlopen("libpcap.so.1", RTLD_NOW);
  if (library == nullptr) {
    *why = "libpcap, which reads captures, is not installed";
    return nullptr;
  }
  static Libpcap functions;
  if (!Find(library, "pcap_close", &functions.close) ||
      !Find(library, "pcap_datalink", &functions.datalink) ||
      !Find(library, "pcap_datalink_val_to_name",
            &functions.datalink_val_to_name) ||
      !Find(library, "pcap_fopen_offline_with_tstamp_precision",
            &functions.fopen_offline_with_tstamp_precision) ||
      !Find(library, "pcap_geterr", &functions.geterr) ||
      !Find(library, "pcap_next_ex", &functions.next_ex)) {
    *why = "libpcap is too old: version 1.5 or later is needed";
    return nullptr;
  }
  return &functions;
}

}  // namespace rxe_user_cli
