# The names that the scan knows, and the tables that find them.

BODY_NAMES = {
    b"model": MODEL,
    b"stream": STREAM,
    b"stream_options": STREAM_OPTIONS,
    b"max_tokens": MAX_TOKENS,
    b"max_completion_tokens": MAX_COMPLETION_TOKENS,
    b"max_output_tokens": MAX_OUTPUT_TOKENS,
    b"n": N,
    b"best_of": BEST_OF,
    b"cache_salt": CACHE_SALT,
    b"system": SYSTEM,
    b"instructions": INSTRUCTIONS,
    b"tools": TOOLS,
    b"functions": FUNCTIONS,
    b"messages": MESSAGES,
    b"prompt": PROMPT,
    b"input": INPUT,
    b"content": CONTENT,
    b"suffix": SUFFIX,
    b"query": QUERY,
    b"documents": DOCUMENTS,
    b"text_1": TEXT_1,
    b"text_2": TEXT_2,
}
MEMBER_TEXT = {meaning: name.decode() for name, meaning in BODY_NAMES.items()}
MEMBER_TEXT[INCLUDE_USAGE] = "stream_options.include_usage"

# Keys inside messages whose strings are not text: labels and ids that chat templates do not show, and what clients
# move about between turns (cache_control).
MESSAGE_NAMES = {
    b"role": ROLE,
    b"url": MEDIA_URL,
    b"image_url": MEDIA_URL,
    b"video_url": MEDIA_URL,
    b"audio_url": MEDIA_URL,
    b"image": MEDIA_URL,
    b"data": MEDIA_DATA,
    b"file_data": MEDIA_DATA,
    b"input": VERBATIM,
    b"arguments": VERBATIM,
    **{
        name: PASSED_OVER
        for name in (
            b"type", b"id", b"call_id", b"tool_call_id", b"tool_use_id", b"cache_control", b"signature",
            b"encrypted_content", b"detail", b"format", b"media_type", b"mime_type", b"status", b"index",
            b"annotations", b"logprobs", b"filename",
        )
    },
}

cdef Names MESSAGE_TABLE
cdef Names OPTION_TABLE


cdef inline size_t slot_of(const unsigned char *text, size_t size) noexcept nogil:
    return (size * 5 + text[0] * 3 + text[size - 1] * 7 + text[size >> 1] * 11) & (NAME_SLOTS - 1)


cdef void add_name(Names *names, bytes name, Meaning meaning):
    cdef const unsigned char *text = <const unsigned char *>PyBytes_AS_STRING(name)
    cdef size_t size = PyBytes_GET_SIZE(name)
    cdef size_t slot = slot_of(text, size)
    while names.slots[slot].text != NULL:
        if names.slots[slot].size == size and memcmp(names.slots[slot].text, text, size) == 0:
            break
        slot = (slot + 1) & (NAME_SLOTS - 1)
    names.slots[slot] = Name(text, size, meaning)


cdef inline Meaning meaning_of(const Names *names, const unsigned char *text, size_t size) noexcept nogil:
    cdef size_t slot
    if size == 0 or size > MAX_KEY:
        return UNKNOWN
    slot = slot_of(text, size)
    while names.slots[slot].text != NULL:
        if names.slots[slot].size == size and memcmp(names.slots[slot].text, text, size) == 0:
            return names.slots[slot].meaning
        slot = (slot + 1) & (NAME_SLOTS - 1)
    return UNKNOWN


# The tables point into the names: MESSAGE_NAMES, BODY_NAMES and _OPTION keep them.
memset(&MESSAGE_TABLE, 0, sizeof(Names))
memset(&OPTION_TABLE, 0, sizeof(Names))
for _name, _meaning in MESSAGE_NAMES.items():
    add_name(&MESSAGE_TABLE, _name, _meaning)
_OPTION = b"include_usage"
add_name(&OPTION_TABLE, _OPTION, INCLUDE_USAGE)
