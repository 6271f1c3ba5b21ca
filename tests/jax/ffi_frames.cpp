// XLA's side of the typed FFI for tests: calls a handler as XLA does, stage by stage, with a stream and the state of a call.
#include <string.h>

#include <string>
#include <vector>

#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  std::string text;
};

#if XLA_FFI_API_MINOR < 4  // jaxlib 0.10
typedef XLA_FFI_ExecutionContext XLA_FFI_InvokeContext;
struct XLA_FFI_ExecutionContext {
#else
struct XLA_FFI_InvokeContext {
#endif
  void* stream;
  void** state;
};

static XLA_FFI_Error* create(XLA_FFI_Error_Create_Args* args) { return new XLA_FFI_Error{args->message}; }
#if XLA_FFI_API_MINOR < 4
static void message(XLA_FFI_Error_GetMessage_Args* args) { args->message = args->error->text.c_str(); }
#else
static void message(XLA_FFI_Error_GetDetails_Args* args) { args->message = args->error->text.c_str(); }
#endif
static void destroy(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }
static XLA_FFI_Error* stream_of(XLA_FFI_Stream_Get_Args* args) {
  args->stream = args->ctx->stream;
  return nullptr;
}
static XLA_FFI_Error* set_state(XLA_FFI_State_Set_Args* args) {
  *args->ctx->state = args->state;
  return nullptr;
}
static XLA_FFI_Error* get_state(XLA_FFI_State_Get_Args* args) {
  args->state = *args->ctx->state;
  return nullptr;
}

static std::string said;

extern "C" __attribute__((visibility("default"))) const char* frames_call(
    XLA_FFI_Handler* handler, int stage, const char* key, void* stream, void** state, long long inputs, void** given,
    const long long* input_bytes, long long outputs, void** made, const long long* output_bytes) {
  XLA_FFI_Api api = {};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  api.api_version.major_version = XLA_FFI_API_MAJOR;
  api.api_version.minor_version = XLA_FFI_API_MINOR;
  api.XLA_FFI_Error_Create = create;
#if XLA_FFI_API_MINOR < 4
  api.XLA_FFI_Error_GetMessage = message;
#else
  api.XLA_FFI_Error_GetDetails = message;
#endif
  api.XLA_FFI_Error_Destroy = destroy;
  api.XLA_FFI_Stream_Get = stream_of;
  api.XLA_FFI_State_Set = set_state;
  api.XLA_FFI_State_Get = get_state;
  XLA_FFI_InvokeContext context = {stream, state};

  std::vector<XLA_FFI_Buffer> buffers((size_t)(inputs + outputs));
  std::vector<void*> addresses;
  for (long long k = 0; k < inputs + outputs; ++k) {
    XLA_FFI_Buffer& buffer = buffers[(size_t)k];
    const bool is_input = k < inputs;
    buffer.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    buffer.dtype = XLA_FFI_DataType_U8;
    buffer.data = is_input ? given[k] : made[k - inputs];
    buffer.rank = 1;
    buffer.dims = (int64_t*)(is_input ? input_bytes + k : output_bytes + (k - inputs));
    addresses.push_back(&buffer);
  }
  std::vector<XLA_FFI_ArgType> arg_types((size_t)inputs, XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> ret_types((size_t)outputs, XLA_FFI_RetType_BUFFER);

  XLA_FFI_ByteSpan name = {"key", 3}, value = {key, strlen(key)};
  XLA_FFI_ByteSpan* names[] = {&name};
  XLA_FFI_AttrType type = XLA_FFI_AttrType_STRING;
  void* values[] = {&value};

  XLA_FFI_CallFrame frame = {};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api;
  frame.ctx = &context;
  frame.stage = (XLA_FFI_ExecutionStage)stage;
  frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, inputs, arg_types.data(), addresses.data()};
  frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, outputs, ret_types.data(), addresses.data() + inputs};
  frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE, nullptr, 1, &type, names, values};
  XLA_FFI_Error* fault = handler(&frame);
  said = fault ? fault->text : "";
  delete fault;
  return said.c_str();
}

// what a handler says that it can do: its traits
extern "C" __attribute__((visibility("default"))) unsigned frames_traits(XLA_FFI_Handler* handler) {
  XLA_FFI_Metadata metadata = {};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension = {};
  extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame = {};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.extension_start = &extension.extension_base;
  handler(&frame);
  return metadata.traits;
}
