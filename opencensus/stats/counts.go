package stats

// Loss is something that is lost or changed: what, and why.
type Loss uint8

const (
	// Measurements that no view has.
	NoView          Loss = iota // of their measure is registered
	TypeConflict                // not the type of their measure
	NoValue                     // the type of the measurement is not known
	NotFinite                   // NaN or infinite
	OutOfRange                  // an int above int64
	MeasureName                 // the name of the measure is too long
	MeasureNoRoom               // the measure is not known, and cannot be created
	TooManyOfRecord             // too many in one record, or too many views of them

	// Measurements that a view does not have as they were.
	Negative  // not added to a monotonic sum
	Overflow  // in the overflow series, without their tags
	Saturated // the sum has reached the end of its range

	// Measures that were not created.
	CreateType     // neither int nor float
	CreateConflict // exists with the other type
	CreateName     // too long
	CreateNoRoom

	// Views that were not registered.
	ViewInvalid    // unknown aggregation, or an empty name or tag key
	ViewConflict   // exists with another definition
	ViewName       // a name is too long: the view's, the measure's, or a tag key
	ViewTagKeys    // too many
	ViewBoundaries // too many
	ViewTooMany    // too many in one message, or of the user's views with the measure
	ViewNoRoom

	UnregisterTooMany // names of views in one message: those views were not unregistered

	// Registered views, and created measures, of a user with many, that were not used for long. They are forgotten.
	ViewUnused
	MeasureUnused

	// Reporting periods.
	PeriodInvalid // not set: not a positive, finite number
	PeriodClamped // set to the closest that is permitted

	// Texts.
	TextCut  // a description or unit that was too long
	ValueCut // the value of a tag or attachment that was too long

	// Tags and attachments of records that are ignored.
	TagName     // the key is too long
	TagsTooMany // too many in one record

	// Exemplars.
	ExemplarNoRoom    // left out
	ExemplarAttribute // an attribute is left out: too large, no key, or its key is there already
	ExemplarTooLarge  // does not fit into a request with its point

	PointTooLarge // left out of the export: does not fit into a request

	// Series that are left out of a Gather, each time.
	GatherName   // the translated name of the view is taken by one that was registered before
	GatherLabel  // translated labels are not unique, or reserved
	GatherNoRoom // too many for one Gather

	NumLosses
)

// lossNames are the values of two labels.
var lossNames = [NumLosses][2]string{
	NoView: {"measurement", "no_view"}, TypeConflict: {"measurement", "type_conflict"},
	NoValue: {"measurement", "no_value"}, NotFinite: {"measurement", "not_finite"},
	OutOfRange: {"measurement", "out_of_range"}, MeasureName: {"measurement", "name_too_long"},
	MeasureNoRoom: {"measurement", "no_room"}, TooManyOfRecord: {"measurement", "too_many"},
	Negative: {"update", "negative"}, Overflow: {"update", "overflow"}, Saturated: {"update", "saturated"},
	CreateType: {"measure", "invalid"}, CreateConflict: {"measure", "type_conflict"},
	CreateName: {"measure", "name_too_long"}, CreateNoRoom: {"measure", "no_room"},
	ViewInvalid: {"view", "invalid"}, ViewConflict: {"view", "conflict"}, ViewName: {"view", "name_too_long"},
	ViewTagKeys: {"view", "tag_keys"}, ViewBoundaries: {"view", "boundaries"}, ViewTooMany: {"view", "too_many"},
	ViewNoRoom: {"view", "no_room"}, UnregisterTooMany: {"unregistration", "too_many"},
	ViewUnused: {"registered_view", "unused"}, MeasureUnused: {"created_measure", "unused"},
	PeriodInvalid: {"period", "invalid"}, PeriodClamped: {"period", "clamped"},
	TextCut: {"text", "cut"}, ValueCut: {"value", "cut"},
	TagName: {"tag", "name_too_long"}, TagsTooMany: {"tag", "too_many"},
	ExemplarNoRoom: {"exemplar", "no_room"}, ExemplarAttribute: {"exemplar_attribute", "left_out"},
	ExemplarTooLarge: {"exemplar", "too_large"}, PointTooLarge: {"point", "too_large"},
	GatherName: {"gathered_series", "name_clash"}, GatherLabel: {"gathered_series", "label_clash"},
	GatherNoRoom: {"gathered_series", "no_room"},
}

// Labels returns what is lost and why, as values of two labels: no two losses have the same. The
// units of different things do not add up.
func (l Loss) Labels() (what, reason string) {
	if l < NumLosses {
		return lossNames[l][0], lossNames[l][1]
	}
	return "unknown", "unknown"
}

// Counts counts from the start.
type Counts struct {
	// Measurements are those of all records: Aggregated, and the losses of measurements.
	Measurements uint64
	Aggregated   uint64 // handed to at least one view

	// Views are those of all registrations: the losses of views, and the others.
	Views         uint64
	ViewsCreated  uint64
	ViewsReplaced uint64 // by another definition
	ViewsKnown    uint64 // the same as before

	Lost [NumLosses]uint64
}
