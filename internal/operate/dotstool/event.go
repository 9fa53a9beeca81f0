package dotstool

import (
	"encoding/json"

	"correlator/dots/client"
	"correlator/dots/dynamic"
	"correlator/dots/frame"
	"correlator/dots/schema"
	"correlator/dots/value"
)

// event is a line of JSON about a transmission.
type event struct {
	Operation  string          `json:"operation"`
	Type       string          `json:"type"`
	Sender     uint32          `json:"sender"`
	SentTime   *string         `json:"sentTime,omitempty"`
	ServerTime *string         `json:"serverSentTime,omitempty"`
	FromCache  *uint32         `json:"fromCache,omitempty"` // objects that follow in the replay
	Properties []string        `json:"properties"`          // that were transmitted, or unset
	Instance   json.RawMessage `json:"instance"`            // the whole object
}

func newEvent(e *client.Event[*client.Raw]) (*event, error) {
	h, s := e.Header, e.Updated.Type
	instance, err := dynamic.AppendJSON(nil, s, e.Updated.Instance)
	if err != nil {
		return nil, err
	}
	line := &event{
		Operation: e.Operation.String(), Type: s.Name, Sender: h.Sender, Instance: instance,
		SentTime:   timeText(h.SentTime, true),
		ServerTime: timeText(h.ServerSentTime, h.Set&frame.ServerSentTime != 0),
		Properties: names(s, h.Attributes),
	}
	if h.Set&frame.FromCache != 0 {
		following := h.FromCache
		line.FromCache = &following
	}
	return line, nil
}

func names(s *schema.Struct, set value.PropertySet) []string {
	names := []string{}
	for i := range s.Properties {
		if set.Has(s.Properties[i].Tag) {
			names = append(names, s.Properties[i].Name)
		}
	}
	return names
}
