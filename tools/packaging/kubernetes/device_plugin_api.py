"""The kubelet's device plugin interface, v1beta1: messages and services.

Names and numbers are those of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1.
Only the fields that are used are declared; protobuf skips others.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

# Message: field: number and type. "*": repeated; "map": string to string.
_MESSAGES = {
    "Empty": {},
    "DevicePluginOptions": {"pre_start_required": (1, "bool"),
                            "get_preferred_allocation_available": (2, "bool")},
    "RegisterRequest": {"version": (1, "string"), "endpoint": (2, "string"),
                        "resource_name": (3, "string"),
                        "options": (4, "DevicePluginOptions")},
    "Device": {"ID": (1, "string"), "health": (2, "string")},
    "ListAndWatchResponse": {"devices": (1, "*Device")},
    "ContainerAllocateRequest": {"devices_ids": (1, "*string")},
    "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
    "Mount": {"container_path": (1, "string"), "host_path": (2, "string"),
              "read_only": (3, "bool")},
    "CDIDevice": {"name": (1, "string")},
    "ContainerAllocateResponse": {"envs": (1, "map"), "mounts": (2, "*Mount"),
                                  "cdi_devices": (5, "*CDIDevice")},
    "AllocateResponse": {
        "container_responses": (1, "*ContainerAllocateResponse")},
}

REGISTRATION = "v1beta1.Registration"
DEVICE_PLUGIN = "v1beta1.DevicePlugin"


def _build():
    field = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": field.TYPE_STRING, "bool": field.TYPE_BOOL}
    file = descriptor_pb2.FileDescriptorProto(
        name="device_plugin_api", package=VERSION, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for key, (number, kind) in fields.items():
            one = message.field.add(name=key, number=number)
            repeated = kind.startswith("*") or kind == "map"
            one.label = field.LABEL_REPEATED if repeated else \
                field.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind == "map":
                # Like the compiler: the pairs are in a message of their own.
                kind = f"{name}.{key.capitalize()}Entry"
                entry = message.nested_type.add(name=kind.split(".")[1])
                entry.options.map_entry = True
                for index, part in enumerate(("key", "value"), 1):
                    entry.field.add(name=part, number=index,
                                    type=field.TYPE_STRING,
                                    label=field.LABEL_OPTIONAL)
            if kind in scalars:
                one.type = scalars[kind]
            else:
                one.type = field.TYPE_MESSAGE
                one.type_name = f".{VERSION}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return {name: factory.GetPrototype(
        pool.FindMessageTypeByName(f"{VERSION}.{name}")) for name in _MESSAGES}


messages = _build()
