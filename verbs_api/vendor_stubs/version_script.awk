# The linker's version script for a list of exports (NAME.exports.txt), whose
# nodes stand in order: each one's parent is the one before it.
#
# A symbol stands in the node of its default version. "local" stands in the last
# node: in an older one it would hide what names that node itself.
/^#/ { next }
$1 != node {
  if (node != "") print "}" parent ";"
  if (node != "") parent = " " node
  node = $1
  print node " {\n  global:"
}
$3 == "@@" { print "    " $2 ";" }
END { print "  local:\n    *;\n}" parent ";" }
