"""SIRI messages: what they say, and what is none."""

from datetime import UTC, datetime

import pytest

from annotations.terms import literal_parts
from loaders.errors import InputError
from loaders.sources.siri import Siri

AT = "2026-01-05T08:00:00+01:00"
ET = f"""<?xml version="1.0" encoding="UTF-8"?>
<Siri xmlns="http://www.siri.org.uk/siri" version="2.0">
 <ServiceDelivery>
  <ResponseTimestamp>{AT}</ResponseTimestamp>
  <EstimatedTimetableDelivery version="2.0">
   <ResponseTimestamp>{AT}</ResponseTimestamp>
   <EstimatedJourneyVersionFrame>
    <EstimatedVehicleJourney>
     <LineRef>L1</LineRef>
     <FramedVehicleJourneyRef>
      <DataFrameRef>2026-01-05</DataFrameRef>
      <DatedVehicleJourneyRef>day</DatedVehicleJourneyRef>
     </FramedVehicleJourneyRef>
     <PublishedLineName>IC 1</PublishedLineName>
     <DestinationName>Ostend</DestinationName>
     <RecordedCalls><RecordedCall>
      <StopPointRef>A</StopPointRef><Order>10</Order>
      <AimedDepartureTime>2026-01-05T07:55:00+01:00</AimedDepartureTime>
      <ActualDepartureTime>2026-01-05T07:57:30+01:00</ActualDepartureTime>
     </RecordedCall></RecordedCalls>
     <EstimatedCalls>
      <EstimatedCall>
       <StopPointRef>B</StopPointRef><Order>20</Order>
       <AimedDepartureTime>2026-01-05T08:10:00+01:00</AimedDepartureTime>
       <ExpectedDepartureTime>2026-01-05T08:09:59.5+01:00</ExpectedDepartureTime>
       <DeparturePlatformName>4</DeparturePlatformName>
      </EstimatedCall>
      <EstimatedCall>
       <StopPointRef>http://stops.example/C</StopPointRef><Order>30</Order>
       <AimedArrivalTime>2026-01-05T08:18:00+01:00</AimedArrivalTime>
       <ExpectedArrivalTime>2026-01-05T08:19:00+01:00</ExpectedArrivalTime>
       <AimedDepartureTime>2026-01-05T08:20:00+01:00</AimedDepartureTime>
      </EstimatedCall>
      <EstimatedCall>
       <StopPointRef>D</StopPointRef><Order>40</Order><Cancellation>true</Cancellation>
       <AimedDepartureTime>2026-01-05T08:30:00+01:00</AimedDepartureTime>
       <ExpectedDepartureTime>2026-01-05T08:31:00+01:00</ExpectedDepartureTime>
      </EstimatedCall>
      <EstimatedCall>
       <StopPointRef>E</StopPointRef><Order>50</Order>
       <AimedArrivalTime>2026-01-05T08:40:00+01:00</AimedArrivalTime>
      </EstimatedCall>
     </EstimatedCalls>
    </EstimatedVehicleJourney>
   </EstimatedJourneyVersionFrame>
  </EstimatedTimetableDelivery>
 </ServiceDelivery>
</Siri>
""".encode()
VM = f"""<siri:Siri xmlns:siri="http://www.siri.org.uk/siri"><siri:ServiceDelivery>
 <siri:VehicleMonitoringDelivery>
  <siri:ResponseTimestamp>{AT}</siri:ResponseTimestamp>
  <siri:VehicleActivity>
   <siri:RecordedAtTime>{AT}</siri:RecordedAtTime>
   <siri:MonitoredVehicleJourney>
    <siri:LineRef>L 1</siri:LineRef>
    <siri:FramedVehicleJourneyRef>
     <siri:DataFrameRef>2026-01-05</siri:DataFrameRef>
     <siri:DatedVehicleJourneyRef>day</siri:DatedVehicleJourneyRef>
    </siri:FramedVehicleJourneyRef>
    <siri:VehicleLocation>
     <siri:Longitude>3.725</siri:Longitude><siri:Latitude>51.05</siri:Latitude>
    </siri:VehicleLocation>
    <siri:Delay>-PT1M30S</siri:Delay>
    <siri:VehicleRef>7</siri:VehicleRef>
    <siri:MonitoredCall><siri:StopPointRef>B</siri:StopPointRef></siri:MonitoredCall>
   </siri:MonitoredVehicleJourney>
  </siri:VehicleActivity>
  <siri:VehicleActivity><siri:MonitoredVehicleJourney>
   <siri:VehicleRef>nowhere</siri:VehicleRef>
  </siri:MonitoredVehicleJourney></siri:VehicleActivity>
 </siri:VehicleMonitoringDelivery>
</siri:ServiceDelivery></siri:Siri>
""".encode()


def said(message: bytes, base: str = "http://h/") -> dict[str, dict[str, str]]:
    """Return the facts of each subject, by the ends of names."""
    found: dict[str, dict[str, str]] = {}
    for subject, predicate, value, _ in Siri(base).read(message, "m.xml"):
        name = predicate[1:-1].rpartition("#")[2]
        text = literal_parts(value).lexical if value.startswith('"') else value[1:-1]
        found.setdefault(subject[1:-1].removeprefix(base), {})[name] = text
    return found


def test_estimated_calls_are_departures_with_their_delays() -> None:
    found = said(ET)
    assert {name: (each.get("delay"), each.get("status")) for name, each in found.items()} == {
        "departures/20260105/day/10": ("150", "departed"),
        "departures/20260105/day/20": ("-1", None),
        "departures/20260105/day/30": ("60", None),
        "departures/20260105/day/40": (None, "cancelled"),
    }
    assert found["departures/20260105/day/20"] == {
        "type": "http://example.org/train#Departure", "routeLabel": "IC 1", "headSign": "Ostend",
        "departureTime": "2026-01-05T08:10:00+01:00", "stop": "http://h/stops/B", "delay": "-1",
        "platform": "4", "trip": "http://h/trips/day",
    }  # fmt: skip
    assert found["departures/20260105/day/30"]["stop"] == "http://stops.example/C"


def test_a_cancelled_journey() -> None:
    cancelled = ET.replace(b"<LineRef>", b"<Cancellation>1</Cancellation><LineRef>", 1)
    assert {each["status"] for each in said(cancelled).values()} == {"cancelled"}
    assert not any("delay" in each for each in said(cancelled).values())


def test_vehicles_are_where_they_are() -> None:
    assert said(VM) == {
        "vehicles/7": {
            "lat": "51.05", "long": "3.725", "routeLabel": "L 1", "trip": "http://h/trips/day",
            "route": "http://h/routes/L%201", "delay": "-90", "stop": "http://h/stops/B",
        }
    }  # fmt: skip


def test_a_duration_may_have_all_its_parts() -> None:
    whole = VM.replace(b"-PT1M30S", b"P0Y0M0DT0H1M30.000S")
    assert said(whole)["vehicles/7"]["delay"] == "90"


def test_when_a_message_was_made() -> None:
    at = datetime(2026, 1, 5, 7, tzinfo=UTC)
    assert [Siri().instant(each, "m") for each in (ET, VM)] == [at, at]


ENTITY = b'<!DOCTYPE Siri [<!ENTITY e SYSTEM "file:///etc/passwd">]><Siri>&e;</Siri>'


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "not XML"),
        (b"<Siri>", "not XML"),
        (b"<html><body/></html>", "no ServiceDelivery of SIRI in <html>"),
        (ENTITY, "may declare entities"),
        (b"<a>" * 1000, "nested more than 200 deep"),
        (b'<?xml version="1.0" encoding="x-none"?><a/>', "m.xml: not"),
        (ET.replace(b"T07:57:30+01:00", b"soon"), "not an xsd:dateTime"),
        (ET.replace(b"T08:30:00+01:00", b"x"), "not an xsd:dateTime: '2026-01-05x'"),
        (VM.replace(b"-PT1M30S", b"late"), "not a duration: 'late'"),
        (VM.replace(b"51.05", b"north"), "not a decimal: 'north'"),
    ],
)
def test_what_is_no_message(message: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=r"^m\.xml") as caught:
        Siri().read(message, "m.xml")
    assert reason in str(caught.value)


def test_a_malformed_call_is_an_error_with_what_the_others_say() -> None:
    with pytest.raises(InputError, match="an instant needs a time zone") as caught:
        Siri().read(ET.replace(b"T08:10:00+01:00", b"T08:10:00"), "m.xml")
    assert set(caught.value.rest) == {
        quad for quad in Siri().read(ET, "m.xml") if "/day/20>" not in quad.subject
    }


def test_a_message_of_no_instant() -> None:
    with pytest.raises(InputError, match="of no instant: ''"):
        Siri().instant(b"<Siri><ServiceDelivery/></Siri>", "m.xml")
