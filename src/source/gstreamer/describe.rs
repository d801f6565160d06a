//! What a stream says of itself, in words.

use crate::telemetry::StreamSnapshot;

/// What the caps of an encoded video tell.
pub(super) fn encoded(caps: &gst::CapsRef, told: &mut StreamSnapshot) {
    let Some(structure) = caps.structure(0) else { return };
    let text = |name| structure.get::<&str>(name).ok();
    let side = |name| structure.get::<i32>(name).ok().and_then(|side| u32::try_from(side).ok());
    let codec = match structure.name().as_str() {
        "video/x-h264" => "H.264",
        "video/x-h265" => "H.265",
        "video/x-av1" => "AV1",
        "video/x-vp8" => "VP8",
        "video/x-vp9" => "VP9",
        "image/jpeg" => "Motion JPEG",
        other => other,
    };
    let profile = text("profile").map(|profile| format!(" {profile}")).unwrap_or_default();
    let level = text("level").map(|level| format!(" level {level}")).unwrap_or_default();
    told.codec = Some(format!("{codec}{profile}{level}"));
    (told.width, told.height) = (side("width"), side("height"));
    let rate = structure.get::<gst::Fraction>("framerate").ok();
    // 0/1 says that it is not known.
    told.rate = rate.map(|rate| f64::from(rate.numer()) / f64::from(rate.denom())).filter(|rate| *rate > 0.0);
}

/// What an RTSP camera's session description tells of its track `number`, told again when the transport changes.
pub(super) fn track(caps: &gst::CapsRef, number: u32, told: &mut StreamSnapshot) {
    let Some(structure) = caps.structure(0) else { return };
    let text = |name| structure.get::<&str>(name).unwrap_or("unknown");
    let track = format!("{} {}", text("media"), text("encoding-name"));
    match told.tracks.get_mut(number as usize) {
        Some(known) => *known = track,
        None => told.tracks.push(track),
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    fn caps(text: &str) -> gst::Caps {
        gst::init().unwrap();
        gst::Caps::from_str(text).unwrap()
    }

    #[test]
    fn a_video_is_told_with_profile_size_and_rate() {
        let mut told = StreamSnapshot::default();
        encoded(
            &caps("video/x-h264,profile=high,level=(string)4.1,width=1920,height=1080,framerate=25/1"),
            &mut told,
        );
        assert_eq!(told.codec.as_deref(), Some("H.264 high level 4.1"));
        assert_eq!((told.width, told.height, told.rate), (Some(1920), Some(1080), Some(25.0)));
        encoded(&caps("image/jpeg,framerate=0/1"), &mut told);
        assert_eq!(
            (told.codec.as_deref(), told.width, told.rate),
            (Some("Motion JPEG"), None, None),
            "nothing of before is left"
        );
    }

    #[test]
    fn a_track_that_is_told_again_is_still_one() {
        let mut told = StreamSnapshot::default();
        let video = caps("application/x-rtp,media=video,encoding-name=H264");
        track(&video, 0, &mut told);
        track(&caps("application/x-rtp,media=audio,encoding-name=PCMA"), 1, &mut told);
        track(&video, 0, &mut told);
        assert_eq!(told.tracks, ["video H264", "audio PCMA"]);
    }
}
