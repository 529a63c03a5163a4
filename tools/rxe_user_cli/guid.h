// GUIDs as text.
#ifndef TOOLS_RXE_USER_CLI_GUID_H_
#define TOOLS_RXE_USER_CLI_GUID_H_

#include <cstdint>
#include <cstdio>
#include <string>

namespace rxe_user_cli {

// Formats a GUID in host order like ibv_devinfo: "0000:00ff:fe00:00ab".
inline std::string GuidText(uint64_t guid) {
  char text[20];
  std::snprintf(text, sizeof(text), "%04x:%04x:%04x:%04x",
                static_cast<unsigned>(guid >> 48),
                static_cast<unsigned>(guid >> 32 & 0xffff),
                static_cast<unsigned>(guid >> 16 & 0xffff),
                static_cast<unsigned>(guid & 0xffff));
  return text;
}

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_GUID_H_
