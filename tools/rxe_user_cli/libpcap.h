// libpcap, loaded when a capture is read. Only this part of rxe-user needs it,
// and smaller systems do not have it, or have it under another name.
#ifndef TOOLS_RXE_USER_CLI_LIBPCAP_H_
#define TOOLS_RXE_USER_CLI_LIBPCAP_H_

#include <pcap/pcap.h>

#include <string>

namespace rxe_user_cli {

struct Libpcap {
  decltype(&::pcap_close) close;
  decltype(&::pcap_datalink) datalink;
  decltype(&::pcap_datalink_val_to_name) datalink_val_to_name;
  decltype(&::pcap_fopen_offline_with_tstamp_precision)
      fopen_offline_with_tstamp_precision;
  decltype(&::pcap_geterr) geterr;
  decltype(&::pcap_next_ex) next_ex;
};

// Null, with the reason, if it is not installed. It stays loaded.
const Libpcap* LoadLibpcap(std::string* why);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_LIBPCAP_H_
