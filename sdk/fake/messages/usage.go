package messages

// Usage are the tokens of one answer, as the API states them.
type Usage struct {
	Input      int64 `json:"input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	Output     int64 `json:"output_tokens"`
}

// Total is the sum of all of them.
func (u Usage) Total() int64 { return u.Input + u.CacheWrite + u.CacheRead + u.Output }

// used is what an answer to a body of so many bytes has used.
func (p *plan) used(body int) Usage {
	if p.usage != nil {
		return *p.usage
	}
	u := Usage{Input: int64(body)/4 + 1}
	for _, part := range p.parts {
		u.Output += part.size()
	}
	return u
}
