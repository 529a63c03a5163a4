// Checks the shared libraries as the dynamic linker sees them.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace {

struct Export {
  std::string node, symbol;
  bool is_default = false;
  auto operator<=>(const Export&) const = default;
};

std::string Show(const Export& e) {
  return e.symbol + (e.is_default ? "@@" : "@") + e.node;
}

// Reads the committed list of exports.
std::set<Export> Wanted(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::set<Export> exports;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Export e;
    std::string kind;
    words >> e.node >> e.symbol >> kind;
    e.is_default = kind == "@@";
    exports.insert(e);
  }
  return exports;
}

std::vector<char> Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The definitions in the dynamic symbol table of a file, and its dynamic
// section.
struct Library {
  std::set<Export> exports;
  std::set<std::string> unversioned;
  std::string soname;
  std::set<std::string> needed;
  bool nodelete = false;
};

Library Read(const std::string& path) {
  Library library;
  const std::vector<char> bytes = Contents(path);
  const char* base = bytes.data();
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(base);
  const auto* sections =
      reinterpret_cast<const Elf64_Shdr*>(base + header->e_shoff);
  const Elf64_Shdr *symbols = nullptr, *versions = nullptr, *defined = nullptr,
                   *dynamic = nullptr;
  for (int i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr& s = sections[i];
    if (s.sh_type == SHT_DYNSYM) symbols = &s;
    if (s.sh_type == SHT_GNU_versym) versions = &s;
    if (s.sh_type == SHT_GNU_verdef) defined = &s;
    if (s.sh_type == SHT_DYNAMIC) dynamic = &s;
  }
  if (symbols == nullptr || versions == nullptr || defined == nullptr ||
      dynamic == nullptr) {
    ADD_FAILURE() << path << " has no versions";
    return library;
  }
  const char* strings = base + sections[symbols->sh_link].sh_offset;
  std::map<unsigned, std::string> nodes;
  const char* at = base + defined->sh_offset;
  for (unsigned i = 0; i < defined->sh_info; ++i) {
    const auto* definition = reinterpret_cast<const Elf64_Verdef*>(at);
    const auto* name =
        reinterpret_cast<const Elf64_Verdaux*>(at + definition->vd_aux);
    nodes[definition->vd_ndx] = strings + name->vda_name;
    at += definition->vd_next;
  }
  const auto* symbol =
      reinterpret_cast<const Elf64_Sym*>(base + symbols->sh_offset);
  const auto* version =
      reinterpret_cast<const Elf64_Half*>(base + versions->sh_offset);
  for (size_t i = 0; i < symbols->sh_size / sizeof(Elf64_Sym); ++i) {
    if (symbol[i].st_shndx == SHN_UNDEF || symbol[i].st_shndx == SHN_ABS ||
        ELF64_ST_BIND(symbol[i].st_info) == STB_LOCAL) {
      continue;  // aarch64's linker lists sections, too
    }
    const std::string name = strings + symbol[i].st_name;
    const unsigned index = version[i] & 0x7fff;
    if (index < 2) {
      library.unversioned.insert(name);
    } else {
      library.exports.insert({nodes[index], name, (version[i] & 0x8000) == 0});
    }
  }
  const char* names = base + sections[dynamic->sh_link].sh_offset;
  for (const auto* d =
           reinterpret_cast<const Elf64_Dyn*>(base + dynamic->sh_offset);
       d->d_tag != DT_NULL; ++d) {
    if (d->d_tag == DT_SONAME) library.soname = names + d->d_un.d_val;
    if (d->d_tag == DT_NEEDED) library.needed.insert(names + d->d_un.d_val);
    if (d->d_tag == DT_FLAGS_1) {
      library.nodelete = (d->d_un.d_val & DF_1_NODELETE) != 0;
    }
  }
  return library;
}

// `library`: its folder and name, below verbs_api/.
std::string LibraryPath(const std::string& library) {
  return "verbs_api/" + library + ".so.1";
}
std::string ListPath(const std::string& library) {
  return "verbs_api/" + library + ".exports.txt";
}
std::string Name(const std::string& library) {
  return library.substr(library.find('/') + 1);
}

class AbiTest : public testing::TestWithParam<const char*> {};

TEST_P(AbiTest, ExportsWhatTheListSays) {
  const Library library = Read(LibraryPath(GetParam()));
  const std::set<Export> wanted = Wanted(ListPath(GetParam()));
  ASSERT_FALSE(wanted.empty());
  for (const Export& e : wanted) {
    EXPECT_TRUE(library.exports.contains(e)) << "missing " << Show(e);
  }
  for (const Export& e : library.exports) {
    EXPECT_TRUE(wanted.contains(e)) << "unexpected " << Show(e);
  }
  EXPECT_TRUE(library.unversioned.empty())
      << *library.unversioned.begin() << " and others";
  EXPECT_EQ(library.soname, Name(GetParam()) + ".so.1");
  EXPECT_TRUE(library.nodelete);
  // An application may bring its own C++ runtime and Abseil. libgcc_s belongs
  // to glibc (pthread_cancel).
  for (const std::string& needed : library.needed) {
    EXPECT_EQ(needed.find("libstdc++"), std::string::npos);
    EXPECT_EQ(needed.find("absl"), std::string::npos);
  }
}

TEST_P(AbiTest, LoadsAndResolves) {
  void* handle = dlopen(LibraryPath(GetParam()).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  for (const Export& e : Wanted(ListPath(GetParam()))) {
    void* versioned = dlvsym(handle, e.symbol.c_str(), e.node.c_str());
    EXPECT_NE(versioned, nullptr) << Show(e);
    if (e.is_default) {
      EXPECT_EQ(dlsym(handle, e.symbol.c_str()), versioned) << Show(e);
    }
  }
  dlclose(handle);
}

INSTANTIATE_TEST_SUITE_P(
    Libraries, AbiTest,
    testing::Values("libibverbs/libibverbs", "librdmacm/librdmacm",
                    "vendor_stubs/libmlx4", "libmlx5/libmlx5",
                    "vendor_stubs/libefa", "vendor_stubs/libhns",
                    "vendor_stubs/libmana", "vendor_stubs/libionic"),
    [](const auto& info) { return Name(info.param); });

TEST(StubTest, SaysNo) {
  // The one that libmlx5 and librdmacm need, rather than the system's.
  ASSERT_NE(dlopen(LibraryPath("libibverbs/libibverbs").c_str(), RTLD_NOW),
            nullptr)
      << dlerror();
  void* mlx5 = dlopen(LibraryPath("libmlx5/libmlx5").c_str(), RTLD_NOW);
  ASSERT_NE(mlx5, nullptr) << dlerror();
  auto* supported =
      reinterpret_cast<bool (*)(void*)>(dlsym(mlx5, "mlx5dv_is_supported"));
  ASSERT_NE(supported, nullptr);
  EXPECT_FALSE(supported(nullptr));
  auto* create = reinterpret_cast<void* (*)(void*, void*, void*)>(
      dlsym(mlx5, "mlx5dv_create_qp"));
  ASSERT_NE(create, nullptr);
  errno = 0;
  EXPECT_EQ(create(nullptr, nullptr, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  void* efa = dlopen(LibraryPath("vendor_stubs/libefa").c_str(), RTLD_NOW);
  ASSERT_NE(efa, nullptr) << dlerror();
  auto* query = reinterpret_cast<int (*)(void*, void*, uint32_t)>(
      dlsym(efa, "efadv_query_device"));
  ASSERT_NE(query, nullptr);
  EXPECT_EQ(query(nullptr, nullptr, 0), EOPNOTSUPP);
}

// Programs from before 2007 find no device.
TEST(CompatTest, OldInterfaceIsEmpty) {
  void* handle = dlopen(LibraryPath("libibverbs/libibverbs").c_str(), RTLD_NOW);
  ASSERT_NE(handle, nullptr) << dlerror();
  auto* list = reinterpret_cast<void** (*)(int*)>(
      dlvsym(handle, "ibv_get_device_list", "IBVERBS_1.0"));
  ASSERT_NE(list, nullptr);
  int count = 7;
  EXPECT_EQ(list(&count), nullptr);
  EXPECT_EQ(count, 0);
}

}  // namespace
